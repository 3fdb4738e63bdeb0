CREATE TABLE devices (
    device TEXT PRIMARY KEY,
    fleet TEXT NOT NULL,
    serial TEXT UNIQUE,
    board TEXT,
    tags TEXT NOT NULL DEFAULT '[]',
    trust TEXT NOT NULL,
    changed_ns INTEGER NOT NULL
);
CREATE TABLE jobs (
    job TEXT PRIMARY KEY,
    works BLOB NOT NULL,
    title TEXT NOT NULL,
    timeout_s REAL NOT NULL,
    retries INTEGER NOT NULL,
    max_failed_ratio REAL NOT NULL,
    made_ns INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    wave INTEGER NOT NULL,
    waves INTEGER NOT NULL,
    judged_from INTEGER NOT NULL,
    ended_ns INTEGER
);
CREATE INDEX jobs_by_time ON jobs (made_ns);
CREATE INDEX jobs_open ON jobs (made_ns) WHERE ended_ns IS NULL;
CREATE TABLE executions (
    id INTEGER PRIMARY KEY,
    serial INTEGER NOT NULL UNIQUE,
    job TEXT NOT NULL,
    device TEXT NOT NULL,
    fleet TEXT NOT NULL,
    wave INTEGER NOT NULL,
    work INTEGER NOT NULL,
    exclusive TEXT,
    state TEXT NOT NULL,
    version INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    requested TEXT,
    reason TEXT,
    due_ns INTEGER NOT NULL,
    sent_ns INTEGER,
    accepted_ns INTEGER,
    running_ns INTEGER,
    ended_ns INTEGER,
    deadline_ns INTEGER,
    done_ratio REAL,
    doing TEXT,
    runs TEXT NOT NULL,
    text TEXT,
    UNIQUE (job, device)
);
CREATE INDEX executions_of_device ON executions (device, id);
CREATE INDEX executions_of_job ON executions (job, wave, state, serial);
CREATE UNIQUE INDEX executions_in_flight ON executions (device) WHERE state IN ('sent', 'accepted', 'running');
CREATE INDEX executions_open ON executions (id) WHERE ended_ns IS NULL;
-- `token_id` is the sha256 of the token; `key_sha256` whose key it was used for. One that has ended is deleted.
CREATE TABLE tokens (
    device TEXT PRIMARY KEY,
    token_id TEXT NOT NULL UNIQUE,
    fleet TEXT NOT NULL,
    expires_ns INTEGER NOT NULL,
    key_sha256 TEXT
);
-- `serial` is the board's, `number` the certificate's own.
CREATE TABLE certificates (
    number TEXT PRIMARY KEY,
    device TEXT NOT NULL,
    serial TEXT NOT NULL,
    key_sha256 TEXT NOT NULL,
    pem TEXT NOT NULL,
    issued_ns INTEGER NOT NULL,
    not_after_ns INTEGER NOT NULL,
    revoked_ns INTEGER,
    reason TEXT
);
CREATE INDEX certificates_by_key ON certificates (key_sha256);
CREATE INDEX certificates_of_device ON certificates (device, issued_ns);
CREATE INDEX certificates_revoked ON certificates (revoked_ns) WHERE revoked_ns IS NOT NULL;
-- `name` is the accepted name; `decision` is NULL until there is one.
CREATE TABLE requests (
    request TEXT PRIMARY KEY,
    token_id TEXT,
    device TEXT NOT NULL,
    fleet TEXT NOT NULL,
    serial TEXT NOT NULL,
    serial_source TEXT NOT NULL,
    board TEXT,
    key_sha256 TEXT NOT NULL,
    why TEXT NOT NULL,
    asked_ns INTEGER NOT NULL,
    decision TEXT,
    name TEXT
);
-- The client ids that devices are connected with, by the broker's log.
CREATE TABLE sessions (
    client_id TEXT PRIMARY KEY,
    device TEXT NOT NULL
);
CREATE INDEX sessions_of_device ON sessions (device);
CREATE TABLE pending_disconnects (
    device TEXT PRIMARY KEY,
    since_ns INTEGER NOT NULL
);
-- When the broker (`broker`) and each collector (`collector NAME`) were last present.
CREATE TABLE server_parts (
    part TEXT PRIMARY KEY,
    seen_ns INTEGER NOT NULL
);
-- How often the session of a device was taken over by its own certificate, each time within an hour of the previous one.
CREATE TABLE take_overs (
    device TEXT PRIMARY KEY,
    count INTEGER NOT NULL,
    last_ns INTEGER NOT NULL
);
CREATE TABLE presence (
    device TEXT PRIMARY KEY,
    fleet TEXT NOT NULL,
    state TEXT,
    session INTEGER,
    since_ns INTEGER,
    health BLOB,
    activity BLOB,
    activity_ns INTEGER,
    challenge TEXT
);
CREATE TABLE releases (
    sha256 TEXT PRIMARY KEY,
    size_bytes INTEGER NOT NULL,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    board TEXT NOT NULL,
    arch TEXT NOT NULL,
    python TEXT NOT NULL,
    glibc TEXT NOT NULL,
    built_ns INTEGER NOT NULL,
    added_ns INTEGER NOT NULL
);
CREATE TABLE bans (
    device TEXT PRIMARY KEY,
    count INTEGER NOT NULL,
    since_ns INTEGER NOT NULL,
    until_ns INTEGER NOT NULL,
    reason TEXT NOT NULL
);
