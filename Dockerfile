# The images of `inference-logging`, out of the wheels of `make wheels` in dist/wheels. Nothing is compiled here; pip takes
# the wheel of the image's processor:
#
#   make wheels
#   docker build --target listener --tag inferlog-listener:0.1.0 .
#   docker build --tag inferlog:0.1.0 .
#   make webhook && docker build --target webhook --tag inferlog-webhook:0.1.0 .
#   docker buildx build --platform linux/amd64,linux/arm64 --tag registry.example.com/inferlog:0.1.0 --push .
#
# The stage `listener` holds one static program, and the stage `webhook` that of `make webhook`. The last stage holds
# listener, shipper and the tools that read segments.
# An application's own image installs the wheel instead.
#
# A base is named by its version, which a build can replace by a digest:
#   --build-arg BASE=python:3.13.9-slim-trixie@sha256:…
ARG BASE=python:3.13.9-slim-trixie

FROM ${BASE} AS wheel
COPY dist/wheels /wheels
RUN python -m venv /opt/inferlog \
    && /opt/inferlog/bin/pip install --no-cache-dir --no-deps --no-index --find-links /wheels inferlog

# scratch: the program needs no file. It is linked statically, opens no TLS connection, and writes times in UTC.
FROM scratch AS listener
LABEL org.opencontainers.image.title="inferlog-listener" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=wheel /opt/inferlog/bin/inference-logging-listener /
USER 1000:1000
ENTRYPOINT ["/inference-logging-listener"]
CMD ["listen", "--metrics-port", "9464"]

# Its certificate and what it adds to pods are mounted.
FROM scratch AS webhook
ARG TARGETARCH
LABEL org.opencontainers.image.title="inferlog-webhook" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY dist/webhook/${TARGETARCH} /
USER 1000:1000
ENTRYPOINT ["/inference-logging-webhook"]

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
