-- One row an attempt: the decision, what was predicted for the chosen instance, and what came of it.
CREATE TABLE decisions (
    id                      INTEGER PRIMARY KEY,
    decided_at_us           BIGINT NOT NULL,
    request_id              TEXT NOT NULL,
    attempt_id              TEXT NOT NULL UNIQUE,
    policy                  TEXT NOT NULL,
    reason                  TEXT NOT NULL,
    model                   TEXT,
    instance                TEXT,
    lambda_per_usd          DOUBLE PRECISION NOT NULL,
    delta_per_s             DOUBLE PRECISION NOT NULL,
    ttft_target_ms          DOUBLE PRECISION,
    propensity              DOUBLE PRECISION NOT NULL,
    predicted_ttft_s        DOUBLE PRECISION,
    predicted_wait_s        DOUBLE PRECISION,
    predicted_prefill_s     DOUBLE PRECISION,
    predicted_output_tokens DOUBLE PRECISION,
    predicted_accuracy      DOUBLE PRECISION,
    predicted_cost_usd      DOUBLE PRECISION,
    predicted_utility       DOUBLE PRECISION,
    estimate_source         TEXT,
    estimate_age_s          DOUBLE PRECISION,
    streamed                BOOLEAN NOT NULL,
    ending                  TEXT NOT NULL,
    ttft_s                  DOUBLE PRECISION,
    e2e_s                   DOUBLE PRECISION NOT NULL,
    prompt_tokens           BIGINT,
    cached_tokens           BIGINT,
    output_tokens           BIGINT,
    cost_usd                DOUBLE PRECISION,
    outcome_instance        BIGINT NOT NULL,
    feature_version         TEXT,
    features                TEXT,
    candidates              TEXT NOT NULL,
    prompt                  TEXT
);

CREATE INDEX decisions_by_request ON decisions (request_id);
CREATE INDEX decisions_by_time ON decisions (decided_at_us);
CREATE INDEX decisions_by_instance ON decisions (instance, decided_at_us);
