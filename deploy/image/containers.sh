# Where images are kept, and how buildah and podman are called: apart from the machine's own.
SUITE=${SUITE:-bookworm}
MIRROR=${MIRROR:-http://deb.debian.org/debian}
CACHE=$PWD/.cache/image
mkdir -p "$CACHE"

containers() {
	local program=$1 driver=overlay
	shift
	# Without overlay (in a container, say) every layer is copied whole.
	if ! grep -qw overlay /proc/filesystems || [ "$(stat -f -c %T "$CACHE")" = overlayfs ]; then driver=vfs; fi
	"$program" --root "$CACHE/storage-$driver" --runroot "$CACHE/run" --storage-driver "$driver" "$@"
}
