-- Where facts disagree, the views decide; nothing is decided at import.

-- A measurement with everything that it may be compared by.
CREATE VIEW measured AS
SELECT m.uuid AS measurement, m.trial, t.campaign, t.workload, t.shape, t.config, t.role, t.threads,
       t.round, mc.hardware, m.machine, m.policy, a.hash AS artifact, a.code_hash, a.toolchain,
       tc.codegen_version, m.n, m.median_ns, m.mad_ns, m.ci_low_ns, m.ci_high_ns, m.stop_reason,
       m.created_at
FROM trial t
JOIN measurement m ON m.trial = t.uuid
JOIN machine mc ON mc.uuid = m.machine
JOIN artifact a ON a.hash = m.artifact
JOIN toolchain tc ON tc.hash = a.toolchain
WHERE t.state = 'ok';

-- The newest measurement of each comparable thing: a later one corrects an earlier one, a luckier
-- one does not.
CREATE VIEW current_measured AS
SELECT * FROM (
  SELECT *, row_number() OVER (
    PARTITION BY workload, hardware, policy, codegen_version, shape, role, threads, config
    ORDER BY created_at DESC, measurement) AS newest
  FROM measured)
WHERE newest = 1;

-- The present status of each dispatch table. A slot is (workload, hardware, codegen_version): a
-- newer code generator's table does not displace what an older compiler still uses. In a slot the
-- table activated last is active, unless it was retired later still.
CREATE VIEW dispatch_status AS
WITH last_event AS (
  SELECT * FROM (
    SELECT dispatch_table, status, created_at, uuid AS event, row_number() OVER (
      PARTITION BY dispatch_table ORDER BY created_at DESC, uuid) AS newest
    FROM dispatch_event)
  WHERE newest = 1),
ranked AS (
  SELECT d.uuid, d.workload, d.hardware, d.toolchain, tc.codegen_version,
         e.status AS said, e.created_at AS since,
         row_number() OVER (
           PARTITION BY d.workload, d.hardware, tc.codegen_version, e.status IS 'active'
           ORDER BY e.created_at DESC, e.event) AS place
  FROM dispatch_table d
  JOIN toolchain tc ON tc.hash = d.toolchain
  LEFT JOIN last_event e ON e.dispatch_table = d.uuid)
SELECT uuid, workload, hardware, toolchain, codegen_version, since,
       CASE WHEN said IS NULL THEN 'draft'
            WHEN said = 'active' AND place = 1 THEN 'active'
            ELSE 'retired' END AS status
FROM ranked;

CREATE VIEW campaign_progress AS
SELECT c.uuid AS campaign,
       count(t.uuid) AS trials,
       coalesce(sum(t.state = 'queued'), 0) AS queued,
       coalesce(sum(t.state = 'claimed'), 0) AS claimed,
       coalesce(sum(t.state = 'ok'), 0) AS ok,
       coalesce(sum(t.state IN ('wrong', 'crashed', 'timeout', 'compile_failed')), 0) AS failed
FROM campaign c LEFT JOIN trial t ON t.campaign = c.uuid
GROUP BY c.uuid;

CREATE VIEW total_miss AS
SELECT workload, hardware, dims, sum(count) AS count
FROM dispatch_miss GROUP BY workload, hardware, dims;
