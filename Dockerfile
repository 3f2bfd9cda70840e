# The image of Crossover: run.lock by its hashes, the package on top, nothing else; runs as nobody in particular and
# writes nowhere but into a volume at /var/lib/crossover, where there is one. `docker build -t crossover-proxy .`, then
# mount a folder with crossover.yaml at /etc/crossover.
# Without a configuration it serves the demo, which listens on loopback alone unless told otherwise:
# `docker run --rm -p 30000:30000 crossover-proxy serve --host 0.0.0.0`.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements/run.lock requirements/build.lock requirements/
# The build tool stays in this stage, and pip too: the environment that is shipped has neither.
RUN python -m venv --without-pip /opt/crossover \
    && pip --python /opt/crossover/bin/python install --require-hashes -r requirements/run.lock \
    && pip install --require-hashes -r requirements/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY config/curves config/curves
COPY proxy proxy
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && pip --python /opt/crossover/bin/python install --no-deps --no-index /wheels/*.whl

FROM python:${PYTHON}-slim
LABEL org.opencontainers.image.title="crossover-proxy" \
    org.opencontainers.image.description="One OpenAI-compatible endpoint in front of a speculative and a baseline LLM server" \
    org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/crossover /opt/crossover
ENV PATH=/opt/crossover/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# For a volume where routing.learn.state_file is kept: a new one gets its owner from here.
RUN install -d -m 700 -o 10001 -g 10001 /var/lib/crossover
# A number, so that Kubernetes can see that it is not root.
USER 10001:10001
# 30000 is the clients' port. The operators' port (29000) asks for no token until one is set, and listens on loopback until
# admin.host says otherwise; publish it to nobody who may not drain the proxy.
EXPOSE 30000
# Drains: readiness fails, new requests go elsewhere, running answers end. Give it longer than settle_s + drain_s.
STOPSIGNAL SIGTERM
# Liveness, on the operators' port: the clients' port may have TLS (listen.tls) or be full. With admin.tls, or
# another admin.port or an admin.host without loopback, give your own (`--health-cmd`, in compose `healthcheck`).
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 29000, timeout=4); c.request('GET', '/health'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["crossover"]
CMD ["serve", "/etc/crossover/crossover.yaml"]
