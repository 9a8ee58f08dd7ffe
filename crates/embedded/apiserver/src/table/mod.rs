//! The server-side `Table` form of objects, which `kubectl get` prints, and the forms that hold metadata only.

mod core;
mod custom;
pub mod jsonpath;
mod others;
mod pods;
mod view;
mod words;
mod workloads;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::resource::{Column, Resource};
use crate::status::StatusError;
use view::View;

pub use custom::{CustomColumn, columns as custom_columns, default_custom_columns};

/// What a row carries besides its cells (`?includeObject=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Include {
    None,
    #[default]
    Metadata,
    Object,
}

impl Include {
    /// From the query's parameter, empty if not given.
    pub fn parse(text: &str) -> Result<Self, StatusError> {
        Ok(match text {
            "" | "Metadata" => Self::Metadata,
            "None" => Self::None,
            "Object" => Self::Object,
            other => {
                return Err(StatusError::bad_request(format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {}: \
                     must be 'Metadata', 'Object', 'None', or empty",
                    plimsoll_golang::strconv::quote(other)
                )));
            }
        })
    }
}

/// How tables are wanted.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub include: Include,
    /// Of `meta.k8s.io`: `v1` or `v1beta1`.
    pub version: &'static str,
    /// Watches send headers with the first event only.
    pub headers: bool,
    pub now: Timestamp,
}

impl Options {
    pub fn new(now: Timestamp) -> Self {
        Self {
            include: Include::default(),
            version: "v1",
            headers: true,
            now,
        }
    }

    fn api_version(&self) -> String {
        format!("meta.k8s.io/{}", self.version)
    }
}

/// Whether the resource can be shown as a table at all.
pub fn supports(resource: &Resource) -> bool {
    !resource.columns.is_empty()
}

/// The refusal for those that cannot.
pub fn unsupported(resource: &Resource) -> StatusError {
    StatusError::new(
        http::StatusCode::NOT_ACCEPTABLE,
        "NotAcceptable",
        format!(
            "the resource {} does not support being converted to a Table",
            resource.qualified()
        ),
    )
}

/// One object as a table: the answer to a get, or the object of a watch event.
pub fn of_object(resource: &Resource, object: &Value, options: &Options) -> Value {
    let mut metadata = Map::new();
    if let Some(version) = object.pointer("/metadata/resourceVersion") {
        metadata.insert("resourceVersion".into(), version.clone());
    }
    let rows = vec![table_row(resource, object, options)];
    assemble(resource, metadata.into(), rows, options)
}

/// A list as a table; `metadata` is the list's own.
pub fn of_list<'a>(
    resource: &Resource,
    metadata: &Value,
    items: impl IntoIterator<Item = &'a Value>,
    options: &Options,
) -> Value {
    let mut items: Vec<&Value> = items.into_iter().collect();
    if resource.plural == "flowschemas" {
        // The order in which they are tried.
        items.sort_by_key(|item| {
            let precedence = item.pointer("/spec/matchingPrecedence");
            precedence.and_then(Value::as_i64)
        });
    }
    let rows = items
        .into_iter()
        .map(|item| table_row(resource, item, options))
        .collect();
    let mut metadata = metadata.clone();
    // Only lists of custom resources say that there are no further pages.
    if let Some(map) = metadata.as_object_mut()
        && map.get("continue").is_some_and(|value| value == "")
    {
        map.remove("continue");
    }
    assemble(resource, metadata, rows, options)
}

fn assemble(resource: &Resource, metadata: Value, rows: Vec<Value>, options: &Options) -> Value {
    let columns = if options.headers {
        resource.columns.iter().map(definition).collect()
    } else {
        Value::Null
    };
    json!({
        "kind": "Table",
        "apiVersion": options.api_version(),
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

fn definition(column: &Column) -> Value {
    let Column(name, kind, format, priority, custom) = column;
    let description = match custom {
        Some(custom) => custom.description(),
        None => words::of(name).to_owned(),
    };
    json!({
        "name": name,
        "type": kind,
        "format": format,
        "description": description,
        "priority": priority,
    })
}

fn table_row(resource: &Resource, object: &Value, options: &Options) -> Value {
    let carried = match options.include {
        Include::None => Value::Null,
        Include::Metadata => partial_metadata(object, options.version),
        Include::Object => object.clone(),
    };
    let mut row = json!({
        "cells": cells(resource, object, options.now),
        "object": carried,
    });
    if resource.plural == "pods"
        && resource.group.is_empty()
        && let Some(conditions) = pods::row_conditions(object)
    {
        row["conditions"] = conditions;
    }
    row
}

/// An object's cells, one for each of the resource's columns.
pub fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    let view = View { value: object, now };
    if resource.columns.iter().any(|column| column.4.is_some()) {
        return custom::row(&resource.columns, view);
    }
    let plural = resource.plural.as_str();
    let row = match resource.group.as_str() {
        "" if plural == "pods" => Some(pods::row(view)),
        "" | "events.k8s.io" if plural == "events" => Some(core::event(view)),
        "" => core::row(plural, view),
        "apps" => workloads::apps(plural, view),
        "batch" => workloads::batch(plural, view),
        "autoscaling" if resource.kind == "Scale" => Some(scale(view)),
        "autoscaling" => Some(workloads::autoscaler(view)),
        "policy" => Some(workloads::disruption_budget(view)),
        "discovery.k8s.io" => Some(core::endpoint_slice(view)),
        group => others::row(group, plural, view),
    };
    row.unwrap_or_else(|| {
        // Where the columns are name and creation only.
        let created = view.opt_text("/metadata/creationTimestamp");
        vec![
            view.name().into(),
            created.unwrap_or("0001-01-01T00:00:00Z").into(),
        ]
    })
}

fn scale(view: View<'_>) -> Vec<Value> {
    vec![
        view.name().into(),
        view.int("/spec/replicas").into(),
        view.int("/status/replicas").into(),
        view.age().into(),
    ]
}

/// What the `scale` subresource of anything is shown as; those of custom resources name their columns' forms.
pub fn scale_resource(custom: bool) -> Resource {
    let (name_form, age_type) = if custom {
        ("name", "date")
    } else {
        ("", "string")
    };
    let column = |name: &str, kind: &str, format: &str| {
        Column(name.into(), kind.into(), format.into(), 0, None)
    };
    Resource {
        group: "autoscaling".into(),
        version: "v1".into(),
        plural: "scales".into(),
        singular: "scale".into(),
        kind: "Scale".into(),
        scope: crate::resource::Scope::Namespaced,
        short_names: Vec::new(),
        categories: Vec::new(),
        verbs: Vec::new(),
        subresources: Vec::new(),
        columns: vec![
            column("Name", "string", name_form),
            column("Desired", "integer", ""),
            column("Available", "integer", ""),
            column("Age", age_type, ""),
        ],
        storage_version: None,
    }
}

/// `PartialObjectMetadata` of an object; `version` of `meta.k8s.io`.
pub fn partial_metadata(object: &Value, version: &str) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

/// `PartialObjectMetadataList` of a list.
pub fn partial_metadata_list<'a>(
    metadata: &Value,
    items: impl IntoIterator<Item = &'a Value>,
    version: &str,
) -> Value {
    let items: Vec<Value> = items
        .into_iter()
        .map(|item| partial_metadata(item, version))
        .collect();
    json!({
        "kind": "PartialObjectMetadataList",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": metadata,
        // Go has no list where nothing was put into it.
        "items": if items.is_empty() { Value::Null } else { items.into() },
    })
}

#[cfg(test)]
mod tests;
