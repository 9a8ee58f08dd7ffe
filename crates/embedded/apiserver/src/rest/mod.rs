//! What is done with objects, one file a verb.

pub mod actions;
pub mod apply;
mod aside;
pub mod body;
pub mod create;
pub mod delete;
pub mod eviction;
mod fit;
pub mod options;
pub mod patch;
mod quota;
pub mod read;
pub mod scale;
pub mod shape;
mod streams;
pub mod subresource;
pub mod track;
pub mod update;
pub mod watch;
pub mod write;

use std::sync::Arc;

use http::HeaderMap;
use jiff::Timestamp;
use serde_json::Value;

use crate::answer::Format;
use crate::auth::User;
use crate::managed;
use crate::request::{Query, RequestInfo, ResourcePath};
use crate::served::Served;
use crate::server::Server;

/// One request on one resource, with everything a verb needs.
#[derive(Debug)]
pub struct Call<'a> {
    pub server: &'a Server,
    pub served: &'a Arc<Served>,
    pub info: &'a RequestInfo,
    pub path: &'a ResourcePath,
    pub query: &'a Query,
    pub headers: &'a HeaderMap,
    pub user: &'a User,
    pub format: Format,
    pub now: Timestamp,
}

impl Call<'_> {
    pub fn key(&self) -> String {
        self.served.key(&self.path.namespace, &self.path.name)
    }

    /// Who is to be written down as the manager of the fields that this request sets.
    pub fn manager(&self) -> String {
        let agent = self
            .headers
            .get(http::header::USER_AGENT)
            .and_then(|agent| agent.to_str().ok())
            .unwrap_or_default();
        managed::manager_name(self.query.get("fieldManager").unwrap_or_default(), agent)
    }
}

/// A member of `metadata`, as text; empty where it is absent.
pub fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub fn is_being_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

pub fn finalizers(object: &Value) -> Vec<String> {
    object["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one.as_str().map(str::to_owned))
        .collect()
}
