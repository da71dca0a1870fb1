# What a node does while it boots, in the order of arpguard-early.service. Runs in a guest, for kernels.boot.
# $1: the shared folder; $2: the file with what is closed early, or nothing.
set -e
if [ -n "$2" ]; then "$PYTHON" -m arpguard early "$2" >"$1/early.log" 2>&1; fi
ip link set eth0 address "$MAC"
ip link set eth0 up
ip addr add "$OWN/24" dev eth0
for vip in $VIPS; do ip addr add "$vip/32" dev lo; done
touch "$1/network"
until [ -e "$1/asked" ]; do sleep 0.1; done
"$PYTHON" -m arpguard agent --config "$1/agent.yaml" --node-name node-1 --early-file "$1/early.yaml" \
	>"$1/agent.log" 2>&1 &
agent=$!
until grep -q ready: "$1/agent.log" && [ -e "$1/early.yaml" ]; do kill -0 $agent; sleep 0.5; done
touch "$1/ready"
until [ -e "$1/seen" ]; do sleep 0.1; done
kill $agent
wait $agent
