-- Who waits for room in the budget of all tasks, first come first served. A row
-- of a process that died counts for nothing and is removed by whoever sees it.
CREATE TABLE waiting (
  ticket      INTEGER PRIMARY KEY AUTOINCREMENT,
  boot_id     TEXT NOT NULL,
  pid         INTEGER NOT NULL,
  start_ticks INTEGER NOT NULL,
  pidns_inode INTEGER NOT NULL,
  name        TEXT NOT NULL,
  since       INTEGER NOT NULL
) STRICT;
