#!/bin/sh
# enter.sh ROOT HOME COMMAND...: makes ROOT the root of these mount and process namespaces, as a machine that has just
# started would have it, and runs the command there. HOME has what is kept between runs.
set -eu
root=$1 kept=$2
shift 2
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
if mountpoint -q sys/fs/bpf; then umount -l sys/fs/bpf; fi
mount -t tmpfs tmpfs run
mkdir -p root/.cache root/go
for name in .cache go; do mount --bind "$kept/$name" "root/$name"; done
pivot_root . mnt
umount -l /mnt
exec "$@"
