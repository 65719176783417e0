"""`--health_port`: each task serves its health, its readiness and its metrics over HTTP, for orchestrators.

    GET /healthz    200 while the process answers
    GET /readyz     200 if the task does its work, else 503 and what it waits for
    GET /metrics    in the format of Prometheus

    flags    --health_port, --health_host
    server   the HTTP server
    metrics  what the task has counted, as metrics of Prometheus
    part     counts the steps, saves and lost sessions of a worker, and starts the server in every task

Start with `part.py`. The user's page: docs/health.md. Tests: tests/{unit,cluster}/parts/health.
"""
