//! Objects in the form that the client asked for: whole, as metadata only, or as rows of a table.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{BufMut, Bytes};
use http::StatusCode;
use serde_json::Value;

use super::Call;
use crate::answer::{self, Answer, Transform, document, full};
use crate::resource::Resource;
use crate::served::Served;
use crate::status::StatusError;
use crate::table::{self, Include, Options};

/// How one resource's objects are shown to one client.
#[derive(Debug, Clone)]
pub struct Shaper {
    served: Option<Arc<Served>>,
    resource: Arc<Resource>,
    api_version: String,
    transform: Transform,
    options: Options,
}

impl Shaper {
    /// One object as a document, compact.
    pub fn one(&self, stored: &Bytes) -> Bytes {
        let object = &self.present(stored);
        match self.transform {
            Transform::None => document(&self.resource.kind, &self.api_version, object).freeze(),
            Transform::Table => {
                let row = self.row(stored);
                encoded(&table::of_object(&self.resource, &row, &self.options))
            }
            Transform::Partial | Transform::PartialList => encoded(&table::partial_metadata(
                &as_within(value(object)),
                self.options.version,
            )),
        }
    }

    /// Whether the version that was asked for can have it.
    pub fn can_show(&self, stored: &Bytes) -> bool {
        let served = self.served.as_ref();
        served.is_none_or(|served| served.can_show(stored))
    }

    /// As the version that was asked for has it.
    fn present(&self, object: &Bytes) -> Bytes {
        match &self.served {
            Some(served) => served.present(object),
            None => object.clone(),
        }
    }

    /// What a row is made of. It may carry the whole object, which says what it is and is of the version that was asked
    /// for; cells are of what is kept, so that every version shows the same.
    fn row(&self, stored: &Bytes) -> Value {
        match self.options.include {
            Include::Object => {
                let shown = self.present(stored);
                value(&document(&self.resource.kind, &self.api_version, &shown))
            }
            _ if self.is_old_autoscaler() => value(stored),
            _ => as_within(value(&self.present(stored))),
        }
    }

    fn is_old_autoscaler(&self) -> bool {
        self.resource.group == "autoscaling" && self.resource.version == "v1"
    }

    /// Watches send a table's head with the first event only.
    pub fn head_was_sent(&mut self) {
        self.options.headers = false;
    }

    /// `None`: whole objects, which need no shaping.
    pub fn list<'a>(
        &self,
        meta: &Value,
        items: impl IntoIterator<Item = Cow<'a, Bytes>>,
    ) -> Option<Value> {
        let items = items.into_iter();
        match self.transform {
            Transform::None => None,
            Transform::Table => {
                let items: Vec<Value> = items.map(|item| self.row(&item)).collect();
                Some(table::of_list(&self.resource, meta, &items, &self.options))
            }
            Transform::Partial | Transform::PartialList => {
                let items: Vec<Value> = items
                    .map(|item| as_within(value(&self.present(&item))))
                    .collect();
                Some(table::partial_metadata_list(
                    meta,
                    &items,
                    self.options.version,
                ))
            }
        }
    }
}

/// Annotations that stand for fields which a version does not have. Metadata alone comes without them.
const STAND_INS: [&str; 4] = [
    "deprecated.daemonset.template.generation",
    "autoscaling.alpha.kubernetes.io/metrics",
    "autoscaling.alpha.kubernetes.io/current-metrics",
    "autoscaling.alpha.kubernetes.io/behavior",
];

fn as_within(mut object: Value) -> Value {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return object;
    };
    if let Some(annotations) = metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.retain(|key, _| !STAND_INS.contains(&key.as_str()));
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    object
}

/// Metadata of one object is not that of a list, nor the other way round.
fn wrong_number(resource: &Resource, asked_for: &str, list: bool) -> StatusError {
    let package = match resource.group.as_str() {
        "" | "events.k8s.io" => "core",
        group => group.split('.').next().unwrap_or_default(),
    };
    let (which, kind) = if list {
        ("a list", resource.list_kind())
    } else {
        ("not a list", resource.kind.clone())
    };
    refuse_number(asked_for, which, &format!("{package}.{kind}"))
}

fn refuse_number(asked_for: &str, which: &str, go_type: &str) -> StatusError {
    StatusError::new(
        StatusCode::NOT_ACCEPTABLE,
        "NotAcceptable",
        format!("you requested {asked_for}, but the requested object is {which} (*{go_type})"),
    )
}

fn value(object: &[u8]) -> Value {
    serde_json::from_slice(object).unwrap_or_default()
}

fn encoded(value: &Value) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

impl Call<'_> {
    pub fn shaper(&self) -> Result<Shaper, StatusError> {
        let mut shaper = self.shaper_of(&self.served.resource)?;
        shaper.served = Some(self.served.clone());
        Ok(shaper)
    }

    /// For documents of another kind than the resource's own.
    pub fn shaper_of(&self, resource: &Arc<Resource>) -> Result<Shaper, StatusError> {
        let mut options = Options::new(self.now);
        options.version = self.format.meta_version;
        if self.format.transform == Transform::Table {
            options.include = Include::parse(self.query.get("includeObject").unwrap_or_default())?;
            if !table::supports(resource) {
                return Err(table::unsupported(resource));
            }
        }
        Ok(Shaper {
            served: None,
            resource: resource.clone(),
            api_version: resource.api_version(),
            transform: self.format.transform,
            options,
        })
    }

    /// Refuses a list to a client that wants one object's metadata.
    pub fn check_list_form(&self) -> Result<(), StatusError> {
        const ASKED_FOR: &str = "PartialObjectMetadata";
        if self.format.transform != Transform::Partial {
            return Ok(());
        }
        if self.served.is_custom() {
            let go_type = "unstructured.UnstructuredList";
            return Err(refuse_number(ASKED_FOR, "a list", go_type));
        }
        Err(wrong_number(&self.served.resource, ASKED_FOR, true))
    }

    /// An object, in the form that the client asked for.
    pub fn object_answer(&self, code: StatusCode, object: &Bytes) -> Result<Answer, StatusError> {
        if self.format.transform == Transform::PartialList {
            if self.served.is_custom() {
                return Err(StatusError::server_error("content is not a list"));
            }
            let resource = &self.served.resource;
            return Err(wrong_number(resource, "PartialObjectMetadataList", false));
        }
        let json = self.shaper()?.one(object);
        Ok(self.document_answer(code, json))
    }

    /// A document that is at hand as compact JSON.
    pub fn document_answer(&self, code: StatusCode, json: Bytes) -> Answer {
        let body = if self.format.is_plain() {
            let mut body = bytes::BytesMut::from(json);
            body.put_u8(b'\n');
            body.freeze()
        } else {
            self.format.encode(json)
        };
        answer::answer(code, self.format.content_type(), full(body))
    }
}
