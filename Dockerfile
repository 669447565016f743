# docker build -t clustergym . && docker run --rm clustergym policy=arena
# The lines of docs/artifact-appendix.md: docker run --rm -it --entrypoint bash clustergym
FROM python:3.11.7-slim-bookworm
WORKDIR /clustergym
COPY . .
# The versions that the tests passed with, for the build of the package too.
ENV PIP_CONSTRAINT=/clustergym/.ci/constraints.txt PIP_NO_CACHE_DIR=1
RUN pip install -e '.[test]'
ENTRYPOINT ["python", "-m", "clustergym.run"]
CMD ["policy=arena"]
