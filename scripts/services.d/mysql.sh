# shellcheck shell=bash disable=SC2154 # root is set by scripts/services
# MariaDB, for the MySQL adapter.
mysql_port=${OUTBOX_MYSQL_PORT:-33069}

address_mysql() { printf '127.0.0.1:%s\n' "$mysql_port"; }
env_mysql() { printf "export OUTBOX_TEST_MYSQL_URL='mysql://root@%s/outbox'\n" "$(address_mysql)"; }

install_mysql() { apt_install mariadb-server; }

start_mysql() {
  local dir=$root/mysql user=()
  own_dir mysql "$dir"
  ((EUID != 0)) || user=(--user=mysql)
  if [[ ! -d $dir/data/mysql ]]; then
    rm -rf "$dir/data"
    mariadb-install-db --no-defaults "${user[@]}" --datadir="$dir/data" \
      --auth-root-authentication-method=normal --skip-test-db \
      </dev/null >>"$root/mysql.log" 2>&1 3>&- 9>&-
  fi
  # Runs at every start, before the port opens; each statement one line.
  cat >"$dir/init.sql" <<'SQL'
CREATE DATABASE IF NOT EXISTS outbox CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS 'root'@'127.0.0.1';
GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
SQL
  spawn mysql "--datadir=$dir/data" "$(command -v mariadbd || echo /usr/sbin/mariadbd)" --no-defaults "${user[@]}" \
    --datadir="$dir/data" --init-file="$dir/init.sql" --socket="$dir/mysqld.sock" --pid-file="$dir/mysqld.pid" \
    --bind-address=127.0.0.1 --port="$mysql_port" --skip-name-resolve \
    --server-id=1 --log-bin=binlog --binlog-format=ROW \
    --character-set-server=utf8mb4 --max-connections=300 --innodb-buffer-pool-size=256M
}

ready_mysql() {
  mariadb --no-defaults --protocol=tcp -h 127.0.0.1 -P "$mysql_port" -u root -e 'select 1' outbox </dev/null
}
