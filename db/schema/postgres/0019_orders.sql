-- What ../0019_orders.sql is for.
CREATE INDEX trial_of_campaign_by_prediction ON trial (campaign, predicted_ns, uuid)
WHERE predicted_ns IS NOT NULL;
CREATE INDEX trial_of_campaign_by_state ON trial (campaign, state, uuid);
-- A queue's order, as pages ask for it: one that ends with the position would have to be sorted
-- further, and another index of the campaign looks as good.
DROP INDEX trial_by_position;
CREATE INDEX trial_by_position ON trial (campaign, position, uuid);
CREATE INDEX workload_by_threads ON workload (threads);
