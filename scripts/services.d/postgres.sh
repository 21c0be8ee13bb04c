# shellcheck shell=bash disable=SC2154 # root is set by scripts/services
# PostgreSQL: a cluster of its own, apart from Debian's default one.
postgres_port=${OUTBOX_POSTGRES_PORT:-54329}

address_postgres() { printf '127.0.0.1:%s\n' "$postgres_port"; }
env_postgres() {
  printf "export OUTBOX_TEST_POSTGRES_URL='postgres://postgres@%s/outbox?sslmode=disable'\n" "$(address_postgres)"
}

# postgres_bin: the folder of the newest installed server's programs.
postgres_bin() {
  local bin
  # shellcheck disable=SC2012 # version sort of a few plain folder names
  bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
  [[ -x $bin/postgres ]] || return 1
  printf '%s\n' "$bin"
}

install_postgres() {
  # Tests put a pooler of their own in front of it.
  if ! command -v pgbouncer >/dev/null && [[ ! -x /usr/sbin/pgbouncer ]]; then apt_install pgbouncer; fi
  postgres_bin >/dev/null && return 0
  # Without this the package makes and starts a default cluster on port 5432.
  apt_install postgresql-common
  printf 'create_main_cluster = false\n' | as_root tee -a /etc/postgresql-common/createcluster.conf >/dev/null
  apt_install postgresql
}

start_postgres() {
  local bin data
  bin=$(postgres_bin)
  data=$root/postgres/$(basename "$(dirname "$bin")")
  own_dir postgres "$root/postgres"
  if [[ ! -s $data/PG_VERSION ]]; then
    (as_user postgres "$bin/initdb" -D "$data" -U postgres --auth=trust -E UTF8 --locale=C.UTF-8) \
      </dev/null >>"$root/postgres.log" 2>&1 3>&- 9>&-
  fi
  local settings=(
    -c "port=$postgres_port" -c listen_addresses=127.0.0.1 -c "unix_socket_directories=$root/postgres"
    -c wal_level=logical -c max_prepared_transactions=20 -c max_replication_slots=20 -c max_wal_senders=20
    -c max_connections=300 -c shared_buffers=512MB
  )
  local run=()
  ((EUID != 0)) || run=(setpriv --reuid=postgres --regid=postgres --init-groups --)
  spawn postgres "-D $data" "${run[@]}" "$bin/postgres" -D "$data" "${settings[@]}"
}

ready_postgres() {
  local psql
  psql=("$(postgres_bin)/psql" -X -q -h 127.0.0.1 -p "$postgres_port" -U postgres)
  "${psql[@]}" -d outbox -c 'select 1' </dev/null && return 0
  "${psql[@]}" -d postgres -c 'create database outbox' </dev/null
}

# INT is PostgreSQL's fast shutdown: TERM would wait for every client to leave.
stop_postgres() { end postgres INT; }
