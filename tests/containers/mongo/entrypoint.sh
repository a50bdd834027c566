# As the official image does, without its users: options alone go to the server, and clients from outside are welcome.
case "$1" in -*) set -- mongod "$@" ;; esac
case " $*" in *" --bind_ip"*) ;; *) set -- "$@" --bind_ip_all ;; esac
exec "$@" --dbpath /data
