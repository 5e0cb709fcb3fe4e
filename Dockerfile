# The images of `inference-logging`, out of the wheels that `make wheels` has put into dist/wheels: nothing is compiled
# here, so one command builds them for each processor that a wheel is there for:
#
#   make wheels
#   docker build --tag inferlog:0.1.0 .
#   docker build --target listener --tag inferlog-listener:0.1.0 .
#   docker buildx build --platform linux/amd64,linux/arm64 --tag inferlog:0.1.0 --push .
#
# The stage `listener` holds one static program, and no Python; the last one the listener, the shipper and the tools that
# read segments. An application's own image installs the wheel instead.
ARG PYTHON=3.13.9
ARG DEBIAN=bookworm

FROM python:${PYTHON}-slim-${DEBIAN} AS install
COPY dist/wheels /wheels
COPY release/image.txt /
# The packages that it needs are those of image.txt, with these hashes; pip takes the wheel of the image's processor.
RUN python -m venv /opt/inferlog \
    && /opt/inferlog/bin/pip install --no-cache-dir --no-compile --require-hashes --requirement /image.txt \
    && /opt/inferlog/bin/pip install --no-cache-dir --no-compile --no-deps --no-index --find-links /wheels inferlog

FROM scratch AS listener
LABEL org.opencontainers.image.title="inferlog-listener" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=install /opt/inferlog/bin/inference-logging-listener /
USER 1000:1000
ENTRYPOINT ["/inference-logging-listener"]
CMD ["listen", "--metrics-port", "9464"]

FROM python:${PYTHON}-slim-${DEBIAN} AS tools
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
