# The collector as an image for amd64 and arm64, without root. Wheels of edgemeter next to this file (`python -m build`) are used: pip takes
# the newest of these and of its index.
#   docker buildx build --platform linux/amd64,linux/arm64 --file collector.Dockerfile --tag edgemeter-collector .
FROM python:3.13-slim
ARG EDGEMETER="edgemeter[collector]"
COPY collector.Dockerfile *.whl /wheels/
# hadolint ignore=DL3013
RUN pip install --no-cache-dir --find-links /wheels "$EDGEMETER" \
 && useradd --uid 10001 --no-create-home edgemeter \
 && install --directory --owner edgemeter /ledger /tokens/write /tokens/read
USER 10001
ENV EDGEMETER_HOME=/ledger EDGEMETER_METRICS=127.0.0.1:9468
VOLUME /ledger
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s \
  CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:9468/healthz', timeout=5)"]
ENTRYPOINT ["edgemeter"]
CMD ["collector", "up"]
