-- Recorded acceptances of a weaker boundary. A record never changes but for its
-- uses and its revocation, and is never forgotten.
CREATE TABLE acceptances (
  id      TEXT PRIMARY KEY,
  created INTEGER NOT NULL,
  expires INTEGER NOT NULL,
  record  TEXT NOT NULL,             -- task.Acceptance as JSON, without uses and revocation
  uses    INTEGER NOT NULL DEFAULT 0,
  revoked INTEGER
) STRICT;

CREATE TRIGGER acceptances_fixed BEFORE UPDATE ON acceptances
WHEN NEW.id <> OLD.id OR NEW.created <> OLD.created OR NEW.expires <> OLD.expires OR NEW.record <> OLD.record
  OR NEW.uses < OLD.uses OR (OLD.revoked IS NOT NULL AND NEW.revoked IS NOT OLD.revoked)
BEGIN SELECT RAISE(ABORT, 'an acceptance does not change'); END;

CREATE TRIGGER acceptances_kept BEFORE DELETE ON acceptances
BEGIN SELECT RAISE(ABORT, 'acceptances are not forgotten'); END;
