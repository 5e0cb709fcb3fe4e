# The images of `inference-logging`, out of the wheels of `make wheels` in dist/wheels. Nothing is compiled here; pip takes
# the wheel of the image's processor:
#
#   make wheels
#   docker build --target listener --tag inferlog-listener:0.1.0 .
#   docker build --tag inferlog:0.1.0 .
#   docker buildx build --platform linux/amd64,linux/arm64 --tag registry.example.com/inferlog:0.1.0 --push .
#
# The stage `listener` holds one static program, the last stage listener, shipper and the tools that read segments.
# An application's own image installs the wheel instead.
#
# The base is named by its digest, since a tag can move. A build can take another one:
#   --build-arg BASE=registry.example.com/python:3.13.9-slim-trixie
ARG BASE=python:3.13.9-slim-trixie@sha256:326df678c20c78d465db501563f3492d17c42a4afe33a1f2bf5406a1d56b0e86

FROM ${BASE} AS wheel
# Root may install here, and another version of pip is no concern of the build.
ENV PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1
COPY dist/wheels /wheels
RUN python -m venv /opt/inferlog \
    && /opt/inferlog/bin/pip install --no-cache-dir --no-deps --no-index --find-links /wheels inferlog inferlog-listener

# scratch: the program needs no file. It is linked statically, opens no TLS connection, and writes times in UTC.
FROM scratch AS listener
LABEL org.opencontainers.image.title="inferlog-listener" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=wheel /opt/inferlog/bin/inference-logging-listener /
USER 1000:1000
ENTRYPOINT ["/inference-logging-listener"]
CMD ["listen", "--metrics-port", "9464"]

# What the package needs, of the extras cli, metrics, query, s3 and ship: the versions and hashes of the lock, nothing else.
FROM wheel AS install
COPY release/locks/runtime.txt /
RUN /opt/inferlog/bin/pip install --no-cache-dir --require-hashes --requirement /runtime.txt \
    && /opt/inferlog/bin/pip check

FROM ${BASE} AS tools
LABEL org.opencontainers.image.title="inferlog" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=install /opt/inferlog /opt/inferlog
# The root file system may be read-only: nothing is compiled into it. The user is the chart's; another one does as well.
ENV PATH=/opt/inferlog/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 1000:1000
ENTRYPOINT ["inference-logging"]
CMD ["listen", "--metrics-port", "9464"]
