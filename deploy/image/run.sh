#!/bin/bash
# Runs the image where neither systemd nor a container daemon is: run.sh [FLAG OF podman run]... TAG [WORD]...
# As root. The container is in no cgroup of its own, so limits of memory are not in force.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "${1:-}" != --inside ]; then
	exec unshare --mount --propagation private "$0" --inside "$@"
fi
shift
. deploy/image/containers.sh
# crun refuses machines that have both kinds of cgroups, also where it is to use none.
if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi
limit=$(ulimit -Hn) # a higher one may not be set everywhere
exec podman "${STORAGE[@]}" --cgroup-manager cgroupfs --events-backend file run --rm --runtime crun --cgroups=disabled \
	--ulimit "nofile=$limit:$limit" --ulimit nproc=4096:4096 "$@"
