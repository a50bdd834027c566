# As the official image does: options alone go to the server; a user, a password and a database come from outside.
set -e
case "$1" in -*) set -- postgres "$@" ;; esac

user=${POSTGRES_USER:-postgres}
database=${POSTGRES_DB:-$user}
method=${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}

if [ ! -s "$PGDATA/PG_VERSION" ]; then
  if [ -z "$POSTGRES_PASSWORD" ] && [ "$method" != trust ]; then
    echo "POSTGRES_PASSWORD is not set" >&2
    exit 1
  fi
  printf '%s\n' "${POSTGRES_PASSWORD:-unused}" > /tmp/password
  initdb --username="$user" --pwfile=/tmp/password --auth="$method" --locale=C --encoding=UTF8 --no-sync > /tmp/initdb.log 2>&1 ||
    { cat /tmp/initdb.log >&2; exit 1; }
  rm /tmp/password
  echo "host all all all $method" >> "$PGDATA/pg_hba.conf"
  if [ "$database" != postgres ]; then
    printf 'CREATE DATABASE "%s";\n' "$database" | postgres --single template1 > /dev/null
  fi
fi

exec "$@" -c "listen_addresses=*" -c unix_socket_directories=/tmp
