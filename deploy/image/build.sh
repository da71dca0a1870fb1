#!/bin/bash
# Builds the image from nothing but Debian's and Python's package registries: build.sh TAG VERSION
# As root. What it makes stays in .cache/image, and nothing else on this machine changes.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/image/containers.sh
tag=$1 version=$2
base=localhost/arpguard-base:$SUITE

if ! buildah "${STORAGE[@]}" inspect --type image "$base" >/dev/null 2>&1; then
	tree=$(mktemp -d "$CACHE/base.XXXXXX")
	trap 'rm -rf "$tree"' EXIT
	echo "making the base by debootstrap"
	debootstrap --variant=minbase "$SUITE" "$tree" "$MIRROR" >"$CACHE/debootstrap.log"
	cat >"$tree/etc/apt/sources.list" <<-LIST
		deb $MIRROR $SUITE main
		deb $MIRROR $SUITE-updates main
		deb $MIRROR-security $SUITE-security main
	LIST
	# Nothing starts services in a container, and nobody reads documentation there.
	printf '#!/bin/sh\nexit 101\n' >"$tree/usr/sbin/policy-rc.d"
	chmod 755 "$tree/usr/sbin/policy-rc.d"
	printf 'path-exclude=/usr/share/%s/*\n' doc info locale man >"$tree/etc/dpkg/dpkg.cfg.d/small"
	rm -rf "$tree"/var/cache/apt/* "$tree"/var/lib/apt/lists/* "$tree"/usr/share/{doc,info,locale,man}/*
	container=$(buildah "${STORAGE[@]}" from scratch)
	buildah "${STORAGE[@]}" add --quiet "$container" "$tree" / >/dev/null
	buildah "${STORAGE[@]}" commit --quiet --rm "$container" "$base" >/dev/null
fi

# The build trusts whom this machine trusts.
certificates=/etc/ssl/certs/ca-certificates.crt
trust=()
if [ -s "$certificates" ]; then
	trust=(--volume "$certificates:/run/certificates.crt:ro" --build-arg PIP_CERT=/run/certificates.crt)
fi
buildah "${STORAGE[@]}" bud --quiet --isolation chroot "${trust[@]}" \
	--build-arg BASE="$base" --build-arg VERSION="$version" \
	--ignorefile deploy/image/containerignore --file deploy/image/Containerfile --tag "$tag" .
# The image before this one.
buildah "${STORAGE[@]}" rmi --prune >/dev/null
