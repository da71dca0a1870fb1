# Where images are kept, and how buildah and podman are called: apart from the machine's own.
CACHE=$PWD/.cache/image
mkdir -p "$CACHE"

# Without overlay (in a container, say) every layer is copied whole.
driver=overlay
if ! grep -qw overlay /proc/filesystems || [ "$(stat -f -c %T "$CACHE")" = overlayfs ]; then driver=vfs; fi
STORAGE=(--root "$CACHE/storage-$driver" --runroot "$CACHE/run" --storage-driver "$driver")
