//! `history.plimsoll.dev/v1alpha1`: what workloads used, for charts and for requests of the right size. Only where
//! history is kept.
//!
//! A list of WorkloadUsage objects, one a workload, named after it: `deployment.web`. Each has its containers, and each
//! container what it used over all pods, step by step: `{"begins", "samples", "cpu": {"min", "mean", "p95", "max"},
//! "memory": {…}}`, oldest first.

use plimsoll_apimachinery::answer::{Answer, Encoding, Format};
use plimsoll_apimachinery::request::Query;
use plimsoll_apimachinery::selector::Selector;
use plimsoll_apimachinery::status::{StatusError, Subject};
use plimsoll_golang::GoDuration;
use plimsoll_golang::yaml;
use serde_json::Value;

use super::figures;
use super::json::Json;
use super::list;
use super::options;
use crate::history::{History, Row, Summary, Workload};

pub const GROUP: &str = "history.plimsoll.dev";
pub const VERSION: &str = "v1alpha1";
pub const API_VERSION: &str = "history.plimsoll.dev/v1alpha1";
pub const RESOURCE: &str = "workloads";
pub const KIND: &str = "WorkloadUsage";

/// `deployment.web`: two kinds may have one of the same name.
fn name(workload: &Workload) -> String {
    format!("{}.{}", workload.kind.to_ascii_lowercase(), workload.name)
}

fn matches(selector: &Selector, workload: &Workload) -> bool {
    let name = name(workload);
    selector.fields.iter().all(|term| {
        let value = match term.field.as_str() {
            "metadata.name" => name.as_str(),
            _ => &*workload.namespace,
        };
        (value == term.value) == term.equal
    })
}

pub fn list(
    history: &History,
    namespace: Option<&str>,
    query: &Query,
    format: &Format,
    gzip: bool,
) -> Result<Answer, StatusError> {
    let selector = options::selector(query, false)?;
    if !selector.labels.is_empty() {
        let words =
            "workloads have no labels here: select them by metadata.name and metadata.namespace";
        return Err(StatusError::bad_request(words));
    }
    let mut json = Json::new(format.encoding == Encoding::Json && format.pretty);
    json.open(b'{');
    json.field("kind", "WorkloadUsageList");
    json.field("apiVersion", API_VERSION);
    json.key("metadata").object(|_| {});
    json.key("items").open(b'[');
    let mut writer = Writer::new(history, json);
    let wanted = |workload: &Workload| matches(&selector, workload);
    history.visit(namespace, &wanted, &mut |row| writer.row(&row, false));
    let mut json = writer.end();
    json.close(b']');
    json.close(b'}');
    Ok(answer(json, format, gzip))
}

pub fn get(
    history: &History,
    namespace: &str,
    wanted: &str,
    format: &Format,
) -> Result<Answer, StatusError> {
    let json = Json::new(format.encoding == Encoding::Json && format.pretty);
    let mut writer = Writer::new(history, json);
    let is_it = |workload: &Workload| name(workload) == wanted;
    history.visit(Some(namespace), &is_it, &mut |row| writer.row(&row, true));
    if writer.current.is_none() {
        let subject = Subject {
            group: GROUP,
            kind: RESOURCE,
        };
        return Err(StatusError::not_found(subject, wanted));
    }
    Ok(answer(writer.end(), format, false))
}

fn answer(mut json: Json, format: &Format, gzip: bool) -> Answer {
    json.end();
    let bytes = match format.encoding {
        Encoding::Yaml => {
            let value: Value = serde_json::from_slice(&json.out).unwrap_or_default();
            yaml::to_string(&value).into_bytes()
        }
        Encoding::Json | Encoding::Protobuf => json.take(),
    };
    list::whole(bytes, format, gzip)
}

/// Series of one workload follow each other: they become one object.
struct Writer {
    json: Json,
    step: String,
    current: Option<Workload>,
}

impl Writer {
    fn new(history: &History, json: Json) -> Self {
        Self {
            json,
            step: GoDuration::from(history.config().step).to_string(),
            current: None,
        }
    }

    fn row(&mut self, row: &Row<'_>, alone: bool) {
        if self.current.as_ref() != Some(row.workload) {
            self.close();
            self.current = Some(row.workload.clone());
            self.open(row.workload, alone);
        }
        let json = &mut self.json;
        json.element();
        json.object(|json| {
            json.field("name", row.container);
            json.key("buckets").list(|json| {
                for bucket in row.buckets {
                    json.element();
                    json.object(|json| {
                        json.field("begins", figures::time(bucket.begins).as_str());
                        json.key("samples").literal(&bucket.samples.to_string());
                        json.key("cpu");
                        summary(json, &bucket.cpu, figures::cpu);
                        json.key("memory");
                        summary(json, &bucket.memory, figures::memory);
                    });
                }
            });
        });
    }

    fn open(&mut self, workload: &Workload, alone: bool) {
        let json = &mut self.json;
        if !alone {
            json.element();
        }
        json.open(b'{');
        if alone {
            json.field("kind", KIND);
            json.field("apiVersion", API_VERSION);
        }
        json.key("metadata").object(|json| {
            json.field("name", &name(workload));
            json.field("namespace", &workload.namespace);
        });
        json.key("workload").object(|json| {
            json.field("kind", &workload.kind);
            json.field("name", &workload.name);
        });
        json.field("step", &self.step);
        json.key("containers").open(b'[');
    }

    fn close(&mut self) {
        if self.current.take().is_some() {
            self.json.close(b']');
            self.json.close(b'}');
        }
    }

    fn end(mut self) -> Json {
        self.close();
        self.json
    }
}

fn summary(json: &mut Json, summary: &Summary, amount: fn(u64) -> figures::Short) {
    json.object(|json| {
        for (key, value) in [
            ("min", summary.min),
            ("mean", summary.mean),
            ("p95", summary.p95),
            ("max", summary.max),
        ] {
            json.field(key, amount(value as u64).as_str());
        }
    });
}
