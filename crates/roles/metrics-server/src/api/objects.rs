//! NodeMetrics, PodMetrics and what else is made of a row, as JSON.

use super::figures::{self, Short};
use super::json::Json;
use super::row::{Kind, Row};
use crate::points::Usage;

/// What all objects of one answer have in common.
#[derive(Debug, Clone, Copy)]
pub struct Common {
    pub kind: Kind,
    /// `metrics.k8s.io/v1beta1`
    pub api_version: &'static str,
    /// When they were asked for, in whole seconds since the epoch: they are made in that moment.
    pub asked_at: i64,
    created: Short,
}

impl Common {
    pub fn new(kind: Kind, api_version: &'static str, asked_at: i64) -> Self {
        Self {
            kind,
            api_version,
            asked_at,
            created: figures::time(asked_at),
        }
    }
}

/// An object, with its kind where it stands alone.
pub fn object(json: &mut Json, row: &Row<'_>, common: &Common, alone: bool) {
    json.object(|json| {
        if alone {
            json.field("kind", common.kind.name());
            json.field("apiVersion", common.api_version);
        }
        json.key("metadata");
        metadata(json, row, common);
        match row.seconds() {
            Some(at) => json.plain("timestamp", figures::time(at).as_str()),
            None => json.key("timestamp").literal("null"),
        }
        json.plain("window", figures::span(row.window()).as_str());
        match row {
            Row::Node(node) => usage(json, &node.usage),
            Row::Pod(pod) => json.key("containers").list(|json| {
                for (name, used) in pod.containers {
                    json.element();
                    json.object(|json| {
                        json.field("name", name);
                        usage(json, used);
                    });
                }
            }),
        }
    });
}

fn usage(json: &mut Json, usage: &Usage) {
    json.key("usage").object(|json| {
        json.plain("cpu", figures::cpu(usage.nanocores).as_str());
        json.plain("memory", figures::memory(usage.memory).as_str());
        if let Some(swap) = usage.swap {
            json.plain("swap", figures::memory(swap).as_str());
        }
    });
}

pub fn metadata(json: &mut Json, row: &Row<'_>, common: &Common) {
    json.object(|json| {
        json.field("name", row.name());
        if !row.namespace().is_empty() {
            json.field("namespace", row.namespace());
        }
        json.plain("creationTimestamp", common.created.as_str());
        if !row.labels().is_empty() {
            json.key("labels").object(|json| {
                for (key, value) in row.labels().iter() {
                    json.entry(key, value);
                }
            });
        }
    });
}

/// Only who it is.
pub fn partial(json: &mut Json, row: &Row<'_>, common: &Common, meta: &str) {
    json.object(|json| {
        json.field("kind", "PartialObjectMetadata");
        json.field("apiVersion", meta);
        json.key("metadata");
        metadata(json, row, common);
    });
}
