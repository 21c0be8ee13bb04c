# shellcheck shell=bash disable=SC2154 # root is set by scripts/services
# RabbitMQ: a node of its own, with a port mapper (epmd) of its own, so that a
# node that the machine already runs is neither needed nor disturbed.
rabbitmq_port=${OUTBOX_RABBITMQ_PORT:-56729}
rabbitmq_epmd_port=${OUTBOX_RABBITMQ_EPMD_PORT:-56730}
rabbitmq_dist_port=${OUTBOX_RABBITMQ_DIST_PORT:-56731}

address_rabbitmq() { printf '127.0.0.1:%s\n' "$rabbitmq_port"; }
env_rabbitmq() { printf "export OUTBOX_TEST_RABBITMQ_URL='amqp://guest:guest@%s/'\n" "$(address_rabbitmq)"; }

install_rabbitmq() { apt_install rabbitmq-server; }

start_rabbitmq() {
  local dir=$root/rabbitmq
  mkdir -p "$dir"
  cat >"$dir/rabbitmq.conf" <<EOF
listeners.tcp.1 = 127.0.0.1:$rabbitmq_port
EOF
  printf '[].\n' >"$dir/enabled_plugins"
  if ! pid_of epmd >/dev/null; then
    spawn epmd "-port $rabbitmq_epmd_port -address" epmd -port "$rabbitmq_epmd_port" -address 127.0.0.1
    until tcp_open "$rabbitmq_epmd_port"; do
      alive "$(head -n 1 "$root/epmd.pid")" || die "epmd did not start"
      sleep 0.1
    done
  fi
  # The program itself, not Debian's wrapper, which insists on its own user.
  # ALLOW_INPUT lets the Erlang machine replace the shell, so that the pid is
  # the server's; -noinput then takes the console away again.
  spawn rabbitmq "-outbox_services $dir" env HOME="$dir" \
    ERL_EPMD_PORT="$rabbitmq_epmd_port" ERL_EPMD_ADDRESS=127.0.0.1 \
    RABBITMQ_CONF_ENV_FILE=/dev/null RABBITMQ_CONFIG_FILE="$dir/rabbitmq.conf" \
    RABBITMQ_ENABLED_PLUGINS_FILE="$dir/enabled_plugins" \
    RABBITMQ_NODENAME=outbox@localhost RABBITMQ_DIST_PORT="$rabbitmq_dist_port" \
    RABBITMQ_MNESIA_BASE="$dir/data" RABBITMQ_LOG_BASE="$dir/log" RABBITMQ_LOGS=- \
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1} -outbox_services $dir" \
    RABBITMQ_ALLOW_INPUT=1 /usr/lib/rabbitmq/bin/rabbitmq-server -noinput
}

# The server opens this port as the last step of its start; it answers the
# protocol header with a method frame, whose first octet is 1.
ready_rabbitmq() {
  local octet=''
  # shellcheck disable=SC2094 # a socket, read after it was written
  {
    printf 'AMQP\0\0\11\1' >&5
    IFS= read -r -t 5 -N 1 octet <&5
  } 5<>"/dev/tcp/127.0.0.1/$rabbitmq_port" || return 1
  [[ $octet == $'\x01' ]]
}

stop_rabbitmq() {
  end rabbitmq
  end epmd
}
