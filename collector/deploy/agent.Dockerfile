# The agent as an image for amd64 and arm64, without root. Wheels next to this file are used as in collector.Dockerfile, and
# agent.txt pins all else; for another runtime, write it anew from that extra (`uv pip compile --generate-hashes`).
#   docker buildx build --platform linux/amd64,linux/arm64 --file agent.Dockerfile --tag edgemeter-agent .
#   docker run --env EDGEMETER_BROKER=mqtt://broker.example --volume edgemeter:/outbox --volume /run/lock:/run/lock edgemeter-agent
# The board's run lock is in /run/lock: with that volume the container and the board measure one after the other.
# A container sees the sensors and accelerators that are passed into it (--device /dev/bus/usb, --group-add ...). Other
# containers on the board disturb a measurement; the verdict names them.
FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
ARG EDGEMETER="edgemeter"
COPY agent.txt *.whl /wheels/
# hadolint ignore=DL3013
RUN pip install --no-cache-dir --require-hashes --requirement /wheels/agent.txt \
 && pip install --no-cache-dir --no-deps --find-links /wheels "$EDGEMETER" \
 && useradd --uid 10001 --no-create-home edgemeter \
 && install --directory --owner edgemeter /outbox
USER 10001
ENV EDGEMETER_HOME=/outbox
VOLUME /outbox
# An agent is healthy if it is connected to its broker.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s \
  CMD ["python", "-c", "import psutil, sys; sys.exit(not any(one.status == 'ESTABLISHED' for one in psutil.Process(1).net_connections('tcp')))"]
ENTRYPOINT ["edgemeter"]
CMD ["agent", "up"]
