# The image of `inference-logging`: the listener, the shipper and the tools that read segments. An application's own image
# installs the wheel instead (the stage `wheel` has it at /wheels):
#
#   docker build --tag inferlog:0.1.0 .
#   docker build --target listener --tag inferlog-listener:0.1.0 .
#   docker build --target wheel --output type=local,dest=dist .
#
# The image of the stage `listener` holds one static program, and no Python.
#
# Rust is of the least version that the core asks for.
ARG PYTHON=3.13.9
ARG DEBIAN=bookworm

FROM rust:1.90.0-slim-${DEBIAN} AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends musl-tools python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/maturin \
    && /opt/maturin/bin/pip install --no-cache-dir maturin==1.9.6 \
    && rustup target add "$(uname -m)-unknown-linux-musl"
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY native native
COPY inference_logging inference_logging
# The static program comes into the wheel from where maturin looks for scripts. abi3: one wheel for each Python from 3.10
# on.
RUN target="$(uname -m)-unknown-linux-musl" \
    && env "CC_${target//-/_}=musl-gcc" cargo build --release --locked --manifest-path native/Cargo.toml \
        --package inference_logging_listener --target "${target}" \
    && install -D "native/target/${target}/release/inference-logging-listener" \
        inference_logging._native.data/scripts/inference-logging-listener \
    && /opt/maturin/bin/maturin build --release --locked --compatibility linux --out /wheels

FROM scratch AS wheel
COPY --from=build /wheels /wheels

FROM scratch AS listener
LABEL org.opencontainers.image.title="inferlog-listener" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /source/inference_logging._native.data/scripts/inference-logging-listener /
USER 1000:1000
ENTRYPOINT ["/inference-logging-listener"]
CMD ["listen", "--metrics-port", "9464"]

FROM python:${PYTHON}-slim-${DEBIAN} AS install
COPY --from=build /wheels /wheels
RUN python -m venv /opt/inferlog \
    && for wheel in /wheels/*.whl; do /opt/inferlog/bin/pip install --no-cache-dir "${wheel}[cli,metrics,ship]"; done

FROM python:${PYTHON}-slim-${DEBIAN}
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
