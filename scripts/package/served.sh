# Sourced by the checks beside it, after package.sh and chroot.sh.

# free_port: of loopback. What is in a folder shares this machine's network.
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# descendant PID: the youngest below it, in_chroot's program.
descendant() {
    local process=$1 child
    while child=$(pgrep -P "$process"); do process=$child; done
    echo "$process"
}

# ask PORT [KEY]: prints what the model answers; fails unless it is what it should be.
ask() {
    local answer
    answer=$(curl -sf "http://127.0.0.1:$1/v1/completions" -H "Authorization: Bearer ${2:-none}" \
        -d '{"prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}') || return 1
    python3 -c 'import json, sys; print("answered:", repr(json.loads(sys.argv[1])["choices"][0]["text"]))' "$answer"
    [[ $answer == *Paris* ]]
}

# expect_answer PID PORT LOG: waits until the server below PID is ready, asks it, ends it with SIGTERM. Its user must not be
# root, the answer the model's, its status 0.
expect_answer() {
    local server=$1 port=$2 log=$3 program user status=0
    until curl -sf "http://127.0.0.1:$port/ready" >/dev/null; do
        kill -0 "$server" 2>/dev/null || { cat "$log"; die "the server ended"; }
        sleep 0.1
    done
    ask "$port" || die "the answer is not the expected one"
    program=$(descendant "$server")
    user=$(ps -o uid= -p "$program" | tr -d ' ')
    kill -TERM "$program"
    wait "$server" || status=$?
    [ "$user" != 0 ] || die "the server runs as root"
    [ $status = 0 ] || die "SIGTERM ended the server with status $status"
}
