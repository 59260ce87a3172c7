# Stands for the Dockerfile's base image, from Debian's packages: a system with a Python and pip below /usr/local.
ARG SYSTEM
FROM ${SYSTEM}
RUN python3 -m venv /usr/local \
 && rm -rf /usr/lib/python3*/ensurepip /usr/share/python-wheels
