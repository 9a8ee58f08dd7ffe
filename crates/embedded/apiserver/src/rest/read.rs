//! GET: one object, or a list.

use bytes::{BufMut, BytesMut};
use http::StatusCode;
use serde_json::{Value, json};

use super::Call;
use super::options::{integer, invalid_options, revision};
use super::write::SharedStored;
use crate::answer::{self, Answer, document};
use crate::field::{FieldError, Path};
use crate::selector::{self, Selector};
use crate::status::StatusError;
use crate::store::{Page, RevisionError, Stored};

/// How old a list may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Latest,
    /// Any; what is at hand.
    Any,
    NotOlderThan(u64),
    Exactly(u64),
}

impl Call<'_> {
    pub fn selector(&self) -> Result<Selector, StatusError> {
        let labels = self.query.get("labelSelector").unwrap_or_default();
        let fields = self.query.get("fieldSelector").unwrap_or_default();
        let labels = selector::parse_labels(labels).map_err(StatusError::bad_request)?;
        let fields = selector::parse_fields(fields).map_err(StatusError::bad_request)?;
        for term in &fields {
            if !self.served.selects_by(&term.field) {
                return Err(StatusError::bad_request(
                    self.served.unknown_field(&term.field),
                ));
            }
        }
        let mut selector = Selector { labels, fields };
        // The old watch on one object.
        if !self.path.name.is_empty() {
            selector.fields.push(selector::FieldTerm {
                field: "metadata.name".to_owned(),
                value: self.path.name.clone(),
                equal: true,
            });
        }
        Ok(selector)
    }
}

pub fn get(call: &Call<'_>) -> Result<Answer, StatusError> {
    if let Some(wanted) = call.query.get("resourceVersion") {
        let wanted = revision(wanted).map_err(StatusError::server_error)?;
        let current = call.server.store().revision();
        if wanted > current {
            return Err(too_large(wanted, current));
        }
    }
    let stored = call
        .server
        .store()
        .get(&call.served.shelf, &call.key())
        .ok_or_else(|| call.not_found())?;
    call.check_shown(&stored)?;
    call.object_answer(StatusCode::OK, &stored.bytes())
}

pub fn too_large(wanted: u64, current: u64) -> StatusError {
    let mut failure = StatusError::new(
        StatusCode::GATEWAY_TIMEOUT,
        "Timeout",
        format!("Timeout: Too large resource version: {wanted}, current: {current}"),
    );
    failure.details.get_or_insert_default().insert(
        "causes".into(),
        json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]),
    );
    failure.retry_after = Some(1);
    failure
}

pub fn list(call: &Call<'_>) -> Result<Answer, StatusError> {
    list_with_objects(call).map(|(answer, _)| answer)
}

/// The answer, and the objects in it.
pub fn list_with_objects(call: &Call<'_>) -> Result<(Answer, Vec<SharedStored>), StatusError> {
    let selector = call.selector()?;
    let limit = integer(call.query, "limit")?.unwrap_or(0);
    integer(call.query, "timeoutSeconds")?;
    let token = call.query.get("continue");
    check_list_options(call, token.is_some())?;
    let continued = token.map(open_token).transpose()?;
    let at = at(call, token.is_some())?;
    let prefix = call.served.prefix(&call.path.namespace);
    if continued.is_none() && (limit == 0 || !selector.is_empty()) {
        call.check_all_shown(&prefix)?;
    }
    let store = call.server.store();
    let (after, snapshot) = match continued {
        Some(Continued { after, revision }) => (Some(format!("{prefix}{after}")), revision),
        None => (
            None,
            match at {
                At::Exactly(revision) => Some(revision),
                At::NotOlderThan(wanted) => {
                    let current = store.revision();
                    if wanted > current {
                        return Err(too_large(wanted, current));
                    }
                    None
                }
                At::Latest | At::Any => None,
            },
        ),
    };
    // What is at hand comes whole.
    let limit = match (limit, at) {
        (1.., At::Any) if token.is_none() => usize::MAX,
        (1.., _) => limit as usize,
        _ => usize::MAX,
    };
    let page = store
        .list(
            &call.served.shelf,
            &prefix,
            after.as_deref(),
            snapshot,
            limit,
            |stored| stored.is_selected_by(&selector),
        )
        .map_err(|error| refused(error, snapshot, token.is_some()))?;
    // Whether what follows is selected, too, is not looked at; where only one can be meant, nothing follows.
    let more_may_follow = page.remaining > 0 && !names_one(call, &selector);
    let next = more_may_follow
        .then(|| page.items.last())
        .flatten()
        .map(|last| seal_token(page.revision, &last.key[prefix.len()..]));
    let remaining = selector.is_empty().then_some(page.remaining as u64);
    let answer = page_answer(call, &page, next.as_deref(), remaining)?;
    Ok((answer, page.items))
}

/// Whether the selector says which one object is asked for.
fn names_one(call: &Call<'_>, selector: &Selector) -> bool {
    let is_placed = !call.served.resource.namespaced() || !call.path.namespace.is_empty();
    let is_named = |term: &selector::FieldTerm| term.field == "metadata.name" && term.equal;
    is_placed && selector.fields.iter().any(is_named)
}

fn refused(error: RevisionError, asked: Option<u64>, continued: bool) -> StatusError {
    match error {
        RevisionError::Future { current } => too_large(asked.unwrap_or(0), current),
        RevisionError::Expired { .. } if continued => StatusError::gone(
            "Expired",
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
        ),
        RevisionError::Expired { oldest } => StatusError::gone(
            "Expired",
            format!("The resourceVersion for the provided list is too old. (oldest: {oldest})"),
        ),
    }
}

fn check_list_options(call: &Call<'_>, continued: bool) -> Result<(), StatusError> {
    let matching = call.query.get("resourceVersionMatch");
    let version = call.query.get("resourceVersion");
    let path = Path::new("resourceVersionMatch");
    let mut errors = Vec::new();
    if call.query.get("sendInitialEvents").is_some() {
        errors.push(FieldError::forbidden(
            &Path::new("sendInitialEvents"),
            "sendInitialEvents is forbidden for list",
        ));
    }
    if let Some(matching) = matching {
        if version.is_none() {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if continued {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            errors.push(FieldError::not_supported(
                &path,
                matching,
                &["Exact", "NotOlderThan", ""],
            ));
        } else if matching == "Exact" && version == Some("0") {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(invalid_options("ListOptions", &errors))
}

fn at(call: &Call<'_>, continued: bool) -> Result<At, StatusError> {
    let Some(version) = call.query.get("resourceVersion") else {
        return Ok(At::Latest);
    };
    if continued && version != "0" {
        return Err(StatusError::bad_request(
            "specifying resource version is not allowed when using continue",
        ));
    }
    let version = revision(version)
        .map_err(|error| StatusError::bad_request(format!("invalid resource version: {error}")))?;
    Ok(match (version, call.query.get("resourceVersionMatch")) {
        (0, _) => At::Any,
        (version, Some("Exact")) => At::Exactly(version),
        // With a limit and no word about matching, the version is meant exactly.
        (version, None) if call.query.get("limit").is_some_and(|limit| limit != "0") => {
            At::Exactly(version)
        }
        (version, _) => At::NotOlderThan(version),
    })
}

/// `{"v":"meta.k8s.io/v1","rv":5,"start":"name\0"}`, in unpadded base64.
fn seal_token(revision: u64, after: &str) -> String {
    use base64::Engine;
    let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": format!("{after}\0")});
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token.to_string())
}

/// Where a list goes on.
struct Continued {
    after: String,
    /// Of which version; `None` goes on in the present one.
    revision: Option<u64>,
}

fn open_token(token: &str) -> Result<Continued, StatusError> {
    use base64::Engine;
    let refuse = |why: String| {
        StatusError::bad_request(format!(
            "invalid continue token: continue key is not valid: {why}"
        ))
    };
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(token)
        .map_err(|_| {
            let at = crate::codec::decode::illegal_base64_at(token, [b'-', b'_'], false);
            refuse(format!("illegal base64 data at input byte {at}"))
        })?;
    let text = String::from_utf8_lossy(&bytes);
    let node = crate::codec::json::Node::parse(&text).map_err(|error| refuse(error.to_string()))?;
    let value = node.to_value();
    if value["v"] != "meta.k8s.io/v1" {
        return Err(refuse(format!(
            "server does not recognize this encoded version {}",
            value["v"].as_str().unwrap_or_default()
        )));
    }
    let start = value["start"].as_str().unwrap_or_default();
    if start.is_empty() {
        return Err(refuse(
            "encoded start key empty (version meta.k8s.io/v1)".to_owned(),
        ));
    }
    if start.split('/').any(|part| part == "..") {
        return Err(refuse(start.to_owned()));
    }
    let revision = value["rv"].as_i64().unwrap_or(0);
    if revision == 0 {
        return Err(refuse(
            "incorrect encoded start resourceVersion (version meta.k8s.io/v1)".to_owned(),
        ));
    }
    Ok(Continued {
        after: start.trim_end_matches('\0').to_owned(),
        revision: u64::try_from(revision).ok(),
    })
}

fn list_meta(page: &Page, next: Option<&str>, remaining: Option<u64>) -> Value {
    let mut meta = json!({"resourceVersion": page.revision.to_string()});
    if let Some(next) = next {
        meta["continue"] = next.into();
        if let Some(remaining) = remaining {
            meta["remainingItemCount"] = remaining.into();
        }
    }
    meta
}

fn page_answer(
    call: &Call<'_>,
    page: &Page,
    next: Option<&str>,
    remaining: Option<u64>,
) -> Result<Answer, StatusError> {
    call.check_list_form()?;
    page.items
        .iter()
        .try_for_each(|item| call.check_shown(item))?;
    let resource = &call.served.resource;
    let mut meta = list_meta(page, next, remaining);
    let items = page.items.iter().map(|item| item.bytes());
    if let Some(shaped) = call.shaper()?.list(&meta, items) {
        return Ok(answer::json(StatusCode::OK, &shaped, &call.format));
    }
    if call.served.is_custom() && meta.get("continue").is_none() {
        meta["continue"] = "".into();
    }
    let head = json!({"metadata": meta});
    let mut body = document(
        &resource.list_kind(),
        &resource.api_version(),
        head.to_string().as_bytes(),
    );
    body.truncate(body.len() - 1);
    body.put_slice(b",\"items\":[");
    put_items(call, &mut body, &page.items);
    body.put_slice(b"]}");
    Ok(call.document_answer(StatusCode::OK, body.freeze()))
}

/// Items of custom resources say what they are; those of built-in ones do not.
fn put_items(call: &Call<'_>, body: &mut BytesMut, items: &[std::sync::Arc<Stored>]) {
    let total: usize = items.iter().map(|item| item.size() + 1).sum();
    body.reserve(total);
    let resource = &call.served.resource;
    let version = resource.api_version();
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            body.put_u8(b',');
        }
        let item = call.served.present(&item.bytes());
        if call.served.is_custom() {
            body.put_slice(&document(&resource.kind, &version, &item));
        } else {
            body.put_slice(&item);
        }
    }
}
