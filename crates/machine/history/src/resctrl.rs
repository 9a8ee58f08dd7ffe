//! Records cache occupancy and memory bandwidth of the QoS classes.

use plimsoll_observe::collect::resctrl::ResctrlValue;

use super::collect::SampleBatch;
use super::{UsageHistory, metrics as c};

pub fn append(batch: &mut SampleBatch, history: &UsageHistory, values: Vec<ResctrlValue>) {
    for value in &values {
        let cache = value.cache.to_string();
        let (metric, labels) = match value.bandwidth {
            None => (c::RESCTRL_RESOURCE_LLC, vec![value.qos, &*cache]),
            Some(kind) => (c::RESCTRL_RESOURCE_MB, vec![value.qos, &*cache, kind]),
        };
        batch.put(history, metric, &labels, value.value as f64);
    }
    history.latest().lock().resctrl = values;
}
