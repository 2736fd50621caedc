-- Numbers that would stop all others: an event whose number was not given out (who follows the feed
-- would skip what comes until then).
CREATE TRIGGER event_is_bounded BEFORE INSERT ON event
WHEN NEW.number > (SELECT last FROM event_counter)
BEGIN SELECT RAISE(ABORT, 'an event has a number that was not given out'); END;
