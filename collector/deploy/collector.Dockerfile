# The collector as an image for amd64 and arm64, without root. Wheels of edgemeter next to this file (`python -m build`) are used: pip takes
# the newest of these and of its index. All else is installed as pinned in collector.txt, by hash.
#   docker buildx build --platform linux/amd64,linux/arm64 --file collector.Dockerfile --tag edgemeter-collector .
FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
ARG EDGEMETER="edgemeter"
COPY collector.txt *.whl /wheels/
# hadolint ignore=DL3013
RUN pip install --no-cache-dir --require-hashes --requirement /wheels/collector.txt \
 && pip install --no-cache-dir --no-deps --find-links /wheels "$EDGEMETER" \
 && useradd --uid 10001 --no-create-home edgemeter \
 && install --directory --owner edgemeter /ledger /tokens/write /tokens/read
USER 10001
ENV EDGEMETER_HOME=/ledger EDGEMETER_METRICS=127.0.0.1:9468
VOLUME /ledger
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s \
  CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:9468/healthz', timeout=5)"]
ENTRYPOINT ["edgemeter"]
CMD ["collector", "up"]
