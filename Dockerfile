# The sidecar as a container image.
#
#   docker build --tag nats-bridge .
#   docker run --network host --volume ./config/republish-monitor.yaml:/etc/nats-bridge/config.yaml:ro nats-bridge
#
# With the conformance suite (the commands conform, servers and demo) in it as well:
#
#   docker build --tag nats-bridge-conformance --target conformance .
#
# Everything that is installed is in the lock files, with hashes; no compiler is needed. For an image that holds the same
# bytes on another day, name the base by its digest: --build-arg BASE=python@sha256:…
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
# The time goes into wheels that are built here: one that never changes.
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore SOURCE_DATE_EPOCH=1577836800
WORKDIR /src
COPY requirements/build.lock requirements/run.lock requirements/
# What is needed to build goes into this stage's own Python, which is thrown away.
RUN python -m pip install --require-hashes --only-binary :all: --requirement requirements/build.lock
# nkeys, which is plain Python, comes as source only; everything else as wheels.
RUN python -m pip wheel --require-hashes --only-binary :all: --no-binary nkeys --no-build-isolation --wheel-dir /wheels \
    --requirement requirements/run.lock
COPY transforms transforms
COPY bridge bridge
RUN python -m pip wheel --no-deps --no-index --no-build-isolation --wheel-dir /wheels ./transforms ./bridge
# By its name: what is installed by a file's path is no package of an index to those who look for vulnerabilities.
# Bytecode that pip writes would hold the time of the files; this does not.
RUN python -m venv --without-pip /opt/nats-bridge \
 && python -m pip --python /opt/nats-bridge/bin/python install --no-compile --no-index --find-links /wheels nats-bridge \
 && python -m compileall -q --invalidation-mode unchecked-hash /opt/nats-bridge/lib
# The bill of materials (CycloneDX) of what is installed.
RUN cyclonedx-py environment --pyproject bridge/pyproject.toml --mc-type application --spec-version 1.6 \
    --output-reproducible --output-file /opt/nats-bridge/nats-bridge.cdx.json /opt/nats-bridge/bin/python

# The suite needs nothing that the sidecar does not need.
FROM build AS build-conformance
COPY conformance conformance
RUN python -m pip wheel --no-deps --no-index --no-build-isolation --wheel-dir /wheels ./conformance \
 && python -m pip --python /opt/nats-bridge/bin/python install --no-compile --no-index --find-links /wheels nats-conformance \
 && python -m compileall -q --invalidation-mode unchecked-hash /opt/nats-bridge/lib
RUN cyclonedx-py environment --pyproject bridge/pyproject.toml --mc-type application --spec-version 1.6 \
    --output-reproducible --output-file /opt/nats-bridge/nats-bridge.cdx.json /opt/nats-bridge/bin/python

FROM ${BASE} AS sidecar
# Nothing is installed in this image later on.
RUN python -m pip uninstall --yes --quiet --root-user-action ignore pip setuptools wheel \
 && rm -rf /usr/local/lib/python3.*/ensurepip
COPY --from=build /opt/nats-bridge /opt/nats-bridge
# A user without a name owns nothing and can write nowhere. HOME is where contexts of the nats command line may be mounted.
ENV PATH=/opt/nats-bridge/bin:/usr/local/bin:/usr/bin:/bin HOME=/home/nats-bridge
WORKDIR /
USER 65532:65532
# The program is process 1: it starts no others, so no init has to collect them, and it handles SIGTERM itself.
STOPSIGNAL SIGTERM
# Whether it lives, not whether servers do.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
    CMD ["nats-bridge", "status", "--live", "-c", "/etc/nats-bridge/config.yaml"]
ENTRYPOINT ["nats-bridge"]
CMD ["run", "-c", "/etc/nats-bridge/config.yaml"]
# Last, so that a new revision rebuilds nothing else.
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="nats-bridge" \
      org.opencontainers.image.description="Republish and subject transforms for NATS JetStream, from outside the server" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="https://source.example.com/nats-bridge" \
      org.opencontainers.image.documentation="https://docs.example.com/nats-bridge" \
      org.opencontainers.image.base.name="python:3.11-slim-bookworm"

FROM sidecar AS conformance
COPY --from=build-conformance /opt/nats-bridge /opt/nats-bridge

# What is built if no target is named.
FROM sidecar
