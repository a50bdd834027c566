# As the official image does: options alone go to the server, and clients from outside the container are welcome.
case "$1" in -*) set -- redis-server "$@" ;; esac
exec "$@" --protected-mode no
