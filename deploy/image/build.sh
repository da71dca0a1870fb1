#!/bin/bash
# Builds the image from nothing but Debian's and Python's package registries: build.sh NAME VERSION
# As root. NAME:VERSION is for this machine, NAME:VERSION-amd64 and the like for each architecture; an index of all goes
# to dist/, or the folder DIST, with what is in them. What it makes and fetches stays in .cache/image, and nothing else here changes.
# The same packages and sources give the same bytes.
set -euo pipefail
umask 022
cd "$(dirname "$0")/../.."
. deploy/image/containers.sh
name=$1
export VERSION=$2 SUITE=${SUITE:-bookworm} MIRROR=${MIRROR:-http://deb.debian.org/debian}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
revision=$(git describe --always --exclude='*' --abbrev=40 --dirty 2>/dev/null || echo unknown)
architectures=(amd64 arm64)
index=$name:$VERSION-index file=${DIST:-$PWD/dist}/arpguard-$VERSION-image

roots=$CACHE/roots
trap 'rm -rf "$roots"' EXIT
"${PYTHON:-.venv/bin/python}" deploy/image/root.py "$roots" "${architectures[@]}"

mkdir -p "${file%/*}"
rm -f "$file".*
if buildah "${STORAGE[@]}" manifest exists "$index"; then buildah "${STORAGE[@]}" manifest rm "$index" >/dev/null; fi
buildah "${STORAGE[@]}" manifest create "$index" >/dev/null
for architecture in "${architectures[@]}"; do
	tag=$name:$VERSION-$architecture
	container=$(buildah "${STORAGE[@]}" from --arch "$architecture" scratch)
	buildah "${STORAGE[@]}" add --quiet "$container" "$roots/$architecture" / >/dev/null
	buildah "${STORAGE[@]}" config --arch "$architecture" --os linux \
		--created-by "make image-build" \
		--entrypoint '["/opt/arpguard/bin/arpguard"]' --cmd "agent --config /etc/arpguard/config.yaml" \
		--env PATH=/opt/arpguard/bin --env PYTHONUTF8=1 --env PYTHONUNBUFFERED=1 --env PYTHONDONTWRITEBYTECODE=1 \
		--label org.opencontainers.image.title=arpguard \
		--label org.opencontainers.image.description="At most one node answers for a virtual IP" \
		--label org.opencontainers.image.licenses=Apache-2.0 \
		--label org.opencontainers.image.revision="$revision" \
		--label org.opencontainers.image.version="$VERSION" "$container"
	buildah "${STORAGE[@]}" commit --quiet --rm --timestamp "$SOURCE_DATE_EPOCH" "$container" "$tag" >/dev/null
	buildah "${STORAGE[@]}" manifest add "$index" "$tag" >/dev/null
	cp "$roots/$architecture/opt/arpguard/sbom.cdx.json" "$file.$architecture.cdx.json"
done
buildah "${STORAGE[@]}" tag "$name:$VERSION-$(dpkg --print-architecture)" "$name:$VERSION"
buildah "${STORAGE[@]}" manifest push --quiet --all "$index" "oci:$roots/index:$VERSION" >/dev/null
tar --create --file "$file.oci.tar" --directory "$roots/index" --sort=name --mtime="@$SOURCE_DATE_EPOCH" \
	--owner=0 --group=0 --numeric-owner blobs index.json oci-layout
buildah "${STORAGE[@]}" rmi --prune >/dev/null # the images before these
