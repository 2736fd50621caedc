-- Facts stay as they were written: the database itself refuses to change or delete one, whoever asks.
-- (A trial's and a campaign's progress columns move forward; a finished trial is final.)

CREATE TRIGGER hardware_keeps_update BEFORE UPDATE ON hardware
BEGIN SELECT RAISE(ABORT, 'hardware is append-only'); END;
CREATE TRIGGER hardware_keeps_delete BEFORE DELETE ON hardware
BEGIN SELECT RAISE(ABORT, 'hardware is append-only'); END;

CREATE TRIGGER machine_keeps_update BEFORE UPDATE ON machine
BEGIN SELECT RAISE(ABORT, 'machine is append-only'); END;
CREATE TRIGGER machine_keeps_delete BEFORE DELETE ON machine
BEGIN SELECT RAISE(ABORT, 'machine is append-only'); END;

CREATE TRIGGER host_state_keeps_update BEFORE UPDATE ON host_state
BEGIN SELECT RAISE(ABORT, 'host_state is append-only'); END;
CREATE TRIGGER host_state_keeps_delete BEFORE DELETE ON host_state
BEGIN SELECT RAISE(ABORT, 'host_state is append-only'); END;

CREATE TRIGGER toolchain_keeps_update BEFORE UPDATE ON toolchain
BEGIN SELECT RAISE(ABORT, 'toolchain is append-only'); END;
CREATE TRIGGER toolchain_keeps_delete BEFORE DELETE ON toolchain
BEGIN SELECT RAISE(ABORT, 'toolchain is append-only'); END;

CREATE TRIGGER template_keeps_update BEFORE UPDATE ON template
BEGIN SELECT RAISE(ABORT, 'template is append-only'); END;
CREATE TRIGGER template_keeps_delete BEFORE DELETE ON template
BEGIN SELECT RAISE(ABORT, 'template is append-only'); END;

CREATE TRIGGER workload_keeps_update BEFORE UPDATE ON workload
BEGIN SELECT RAISE(ABORT, 'workload is append-only'); END;
CREATE TRIGGER workload_keeps_delete BEFORE DELETE ON workload
BEGIN SELECT RAISE(ABORT, 'workload is append-only'); END;

CREATE TRIGGER shape_keeps_update BEFORE UPDATE ON shape
BEGIN SELECT RAISE(ABORT, 'shape is append-only'); END;
CREATE TRIGGER shape_keeps_delete BEFORE DELETE ON shape
BEGIN SELECT RAISE(ABORT, 'shape is append-only'); END;

CREATE TRIGGER config_keeps_update BEFORE UPDATE ON config
BEGIN SELECT RAISE(ABORT, 'config is append-only'); END;
CREATE TRIGGER config_keeps_delete BEFORE DELETE ON config
BEGIN SELECT RAISE(ABORT, 'config is append-only'); END;

CREATE TRIGGER artifact_keeps_update BEFORE UPDATE ON artifact
BEGIN SELECT RAISE(ABORT, 'artifact is append-only'); END;
CREATE TRIGGER artifact_keeps_delete BEFORE DELETE ON artifact
BEGIN SELECT RAISE(ABORT, 'artifact is append-only'); END;

CREATE TRIGGER measure_policy_keeps_update BEFORE UPDATE ON measure_policy
BEGIN SELECT RAISE(ABORT, 'measure_policy is append-only'); END;
CREATE TRIGGER measure_policy_keeps_delete BEFORE DELETE ON measure_policy
BEGIN SELECT RAISE(ABORT, 'measure_policy is append-only'); END;

CREATE TRIGGER cost_model_keeps_update BEFORE UPDATE ON cost_model
BEGIN SELECT RAISE(ABORT, 'cost_model is append-only'); END;
CREATE TRIGGER cost_model_keeps_delete BEFORE DELETE ON cost_model
BEGIN SELECT RAISE(ABORT, 'cost_model is append-only'); END;

CREATE TRIGGER measurement_keeps_update BEFORE UPDATE ON measurement
BEGIN SELECT RAISE(ABORT, 'measurement is append-only'); END;
CREATE TRIGGER measurement_keeps_delete BEFORE DELETE ON measurement
BEGIN SELECT RAISE(ABORT, 'measurement is append-only'); END;

CREATE TRIGGER samples_keeps_update BEFORE UPDATE ON samples
BEGIN SELECT RAISE(ABORT, 'samples is append-only'); END;
CREATE TRIGGER samples_keeps_delete BEFORE DELETE ON samples
BEGIN SELECT RAISE(ABORT, 'samples is append-only'); END;

CREATE TRIGGER correctness_keeps_update BEFORE UPDATE ON correctness
BEGIN SELECT RAISE(ABORT, 'correctness is append-only'); END;
CREATE TRIGGER correctness_keeps_delete BEFORE DELETE ON correctness
BEGIN SELECT RAISE(ABORT, 'correctness is append-only'); END;

CREATE TRIGGER dispatch_table_keeps_update BEFORE UPDATE ON dispatch_table
BEGIN SELECT RAISE(ABORT, 'dispatch_table is append-only'); END;
CREATE TRIGGER dispatch_table_keeps_delete BEFORE DELETE ON dispatch_table
BEGIN SELECT RAISE(ABORT, 'dispatch_table is append-only'); END;

CREATE TRIGGER dispatch_entry_keeps_update BEFORE UPDATE ON dispatch_entry
BEGIN SELECT RAISE(ABORT, 'dispatch_entry is append-only'); END;
CREATE TRIGGER dispatch_entry_keeps_delete BEFORE DELETE ON dispatch_entry
BEGIN SELECT RAISE(ABORT, 'dispatch_entry is append-only'); END;

CREATE TRIGGER dispatch_event_keeps_update BEFORE UPDATE ON dispatch_event
BEGIN SELECT RAISE(ABORT, 'dispatch_event is append-only'); END;
CREATE TRIGGER dispatch_event_keeps_delete BEFORE DELETE ON dispatch_event
BEGIN SELECT RAISE(ABORT, 'dispatch_event is append-only'); END;

CREATE TRIGGER import_batch_keeps_update BEFORE UPDATE ON import_batch
BEGIN SELECT RAISE(ABORT, 'import_batch is append-only'); END;
CREATE TRIGGER import_batch_keeps_delete BEFORE DELETE ON import_batch
BEGIN SELECT RAISE(ABORT, 'import_batch is append-only'); END;

CREATE TRIGGER migration_keeps_update BEFORE UPDATE ON migration
BEGIN SELECT RAISE(ABORT, 'migration is append-only'); END;
CREATE TRIGGER migration_keeps_delete BEFORE DELETE ON migration
BEGIN SELECT RAISE(ABORT, 'migration is append-only'); END;

CREATE TRIGGER identity_keeps_update BEFORE UPDATE ON identity
BEGIN SELECT RAISE(ABORT, 'identity is append-only'); END;
CREATE TRIGGER identity_keeps_delete BEFORE DELETE ON identity
BEGIN SELECT RAISE(ABORT, 'identity is append-only'); END;

CREATE TRIGGER trial_is_final BEFORE UPDATE ON trial
WHEN OLD.state NOT IN ('queued', 'claimed')
BEGIN SELECT RAISE(ABORT, 'a finished trial is final'); END;
CREATE TRIGGER trial_keeps_key
BEFORE UPDATE OF uuid, campaign, workload, config, shape, role, threads ON trial
BEGIN SELECT RAISE(ABORT, 'the key of a trial is final'); END;
CREATE TRIGGER trial_keeps_delete BEFORE DELETE ON trial
BEGIN SELECT RAISE(ABORT, 'trial is append-only'); END;

CREATE TRIGGER campaign_moves_forward BEFORE UPDATE OF consumed_s ON campaign
WHEN NEW.consumed_s < OLD.consumed_s
BEGIN SELECT RAISE(ABORT, 'the consumed time of a campaign never shrinks'); END;
CREATE TRIGGER campaign_keeps_key BEFORE UPDATE OF uuid, digest, hardware, seed, options ON campaign
BEGIN SELECT RAISE(ABORT, 'the key of a campaign is final'); END;
CREATE TRIGGER campaign_keeps_delete BEFORE DELETE ON campaign
BEGIN SELECT RAISE(ABORT, 'campaign is append-only'); END;

CREATE TRIGGER dispatch_miss_grows BEFORE UPDATE ON dispatch_miss WHEN NEW.count < OLD.count
BEGIN SELECT RAISE(ABORT, 'a miss counter never shrinks'); END;
