-- Times are nanoseconds since 1970 in UTC.

CREATE TABLE instance (
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  id      TEXT NOT NULL CHECK (length(id) = 8),
  created INTEGER NOT NULL,
  version TEXT NOT NULL
);

CREATE TABLE tasks (
  id            TEXT PRIMARY KEY CHECK (length(id) = 11),
  name          TEXT NOT NULL,
  state         TEXT NOT NULL CHECK (state IN ('planned','blocked','creating','probing','ready','paused','closing','closed','kept','stuck')),
  repo          TEXT NOT NULL,
  base          TEXT NOT NULL,
  owner_uid     INTEGER NOT NULL,
  created       INTEGER NOT NULL,
  updated       INTEGER NOT NULL,
  sealed        INTEGER,
  retain_until  INTEGER,
  retain_reason TEXT,
  attempts      INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  next_try      INTEGER,
  last_error    TEXT NOT NULL DEFAULT '',
  view          TEXT NOT NULL CHECK (json_valid(view)),
  CHECK (state <> 'kept' OR retain_until IS NOT NULL),
  CHECK (state <> 'stuck' OR next_try IS NOT NULL)
);

-- A name is free again once its task is being ended: files that are kept for a
-- while must not block the next attempt.
CREATE UNIQUE INDEX tasks_name ON tasks (name) WHERE name <> '' AND state IN ('planned','blocked','creating','probing','ready','paused');
CREATE INDEX tasks_open ON tasks (state) WHERE state <> 'closed';

CREATE TABLE supervisors (
  task        TEXT PRIMARY KEY REFERENCES tasks (id),
  boot_id     TEXT NOT NULL CHECK (boot_id <> ''),
  pid         INTEGER NOT NULL CHECK (pid > 0),
  start_ticks INTEGER NOT NULL,
  pidns_inode INTEGER NOT NULL,
  lock_path   TEXT NOT NULL,
  started     INTEGER NOT NULL
);

CREATE TABLE resources (
  id          INTEGER PRIMARY KEY,
  task        TEXT NOT NULL REFERENCES tasks (id),
  kind        TEXT NOT NULL CHECK (kind <> ''),
  provider    TEXT NOT NULL,
  name        TEXT NOT NULL CHECK (name <> ''),
  external_id TEXT NOT NULL DEFAULT '',
  token       TEXT NOT NULL CHECK (length(token) >= 16),
  state       TEXT NOT NULL CHECK (state IN ('intent','present','removing','gone','stuck')),
  observed    TEXT NOT NULL DEFAULT '',
  parent      TEXT NOT NULL DEFAULT '',
  durable     INTEGER NOT NULL CHECK (durable IN (0, 1)),
  attempts    INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  next_try    INTEGER,
  last_error  TEXT NOT NULL DEFAULT '',
  created     INTEGER NOT NULL,
  updated     INTEGER NOT NULL,
  CHECK (state <> 'stuck' OR next_try IS NOT NULL)
);

-- Rows of what is gone stay as history and do not hold the name.
CREATE UNIQUE INDEX resources_name ON resources (kind, name) WHERE state <> 'gone';
CREATE INDEX resources_task ON resources (task);

-- How far the evidence of a task reached, kept apart from it: a log that lost
-- its tail does not show the loss by itself.
CREATE TABLE heads (
  task TEXT PRIMARY KEY REFERENCES tasks (id),
  seq  INTEGER NOT NULL CHECK (seq >= 0),
  hash TEXT NOT NULL
);

CREATE TRIGGER tasks_start BEFORE INSERT ON tasks
WHEN NEW.state <> 'planned'
BEGIN SELECT RAISE(ABORT, 'a task starts as planned'); END;

CREATE TRIGGER tasks_transition BEFORE UPDATE OF state ON tasks
WHEN NEW.state <> OLD.state AND (OLD.state || '>' || NEW.state) NOT IN (
  'planned>blocked','planned>creating','planned>closing',
  'blocked>closing',
  'creating>blocked','creating>probing','creating>closing','creating>stuck',
  'probing>blocked','probing>ready','probing>closing','probing>stuck',
  'ready>paused','ready>closing','ready>stuck',
  'paused>ready','paused>closing','paused>stuck',
  'closing>closed','closing>kept','closing>stuck',
  'kept>closing','kept>creating','kept>stuck',
  'stuck>closing')
BEGIN SELECT RAISE(ABORT, 'illegal task transition'); END;

CREATE TRIGGER tasks_closed BEFORE UPDATE ON tasks
WHEN OLD.state = 'closed'
BEGIN SELECT RAISE(ABORT, 'a closed task does not change'); END;

CREATE TRIGGER tasks_identity BEFORE UPDATE ON tasks
WHEN NEW.id <> OLD.id OR NEW.created <> OLD.created OR NEW.owner_uid <> OLD.owner_uid
BEGIN SELECT RAISE(ABORT, 'the identity of a task does not change'); END;

CREATE TRIGGER tasks_release BEFORE UPDATE OF state ON tasks
WHEN NEW.state = 'closed' AND EXISTS (SELECT 1 FROM resources WHERE task = NEW.id AND state <> 'gone')
BEGIN SELECT RAISE(ABORT, 'a task with resources is not closed'); END;

CREATE TRIGGER tasks_delete BEFORE DELETE ON tasks
BEGIN SELECT RAISE(ABORT, 'tasks are not forgotten'); END;

CREATE TRIGGER resources_start BEFORE INSERT ON resources
WHEN NEW.state <> 'intent'
BEGIN SELECT RAISE(ABORT, 'a resource starts as intent'); END;

CREATE TRIGGER resources_owner BEFORE INSERT ON resources
WHEN EXISTS (SELECT 1 FROM tasks WHERE id = NEW.task AND state = 'closed')
BEGIN SELECT RAISE(ABORT, 'a closed task gets no resources'); END;

CREATE TRIGGER resources_transition BEFORE UPDATE OF state ON resources
WHEN NEW.state <> OLD.state AND (OLD.state || '>' || NEW.state) NOT IN (
  'intent>present','intent>removing','intent>gone','intent>stuck',
  'present>removing','present>gone','present>stuck',
  'removing>gone','removing>stuck',
  'stuck>removing','stuck>gone')
BEGIN SELECT RAISE(ABORT, 'illegal resource transition'); END;

CREATE TRIGGER resources_gone BEFORE UPDATE ON resources
WHEN OLD.state = 'gone'
BEGIN SELECT RAISE(ABORT, 'what is gone does not change'); END;

CREATE TRIGGER resources_identity BEFORE UPDATE ON resources
WHEN NEW.task <> OLD.task OR NEW.kind <> OLD.kind OR NEW.name <> OLD.name OR NEW.token <> OLD.token OR NEW.created <> OLD.created
BEGIN SELECT RAISE(ABORT, 'the identity of a resource does not change'); END;

CREATE TRIGGER resources_delete BEFORE DELETE ON resources
BEGIN SELECT RAISE(ABORT, 'resources are not forgotten'); END;

CREATE TRIGGER heads_grow BEFORE UPDATE ON heads
WHEN NEW.task <> OLD.task OR NEW.seq < OLD.seq OR (NEW.seq = OLD.seq AND NEW.hash <> OLD.hash)
BEGIN SELECT RAISE(ABORT, 'evidence only grows'); END;

CREATE TRIGGER heads_delete BEFORE DELETE ON heads
BEGIN SELECT RAISE(ABORT, 'evidence only grows'); END;
