//! Parts and actions of objects that have a path of their own.

use super::Call;
use crate::answer::Answer;
use crate::status::StatusError;

pub async fn handle(call: &Call<'_>, body: &[u8]) -> Result<Answer, StatusError> {
    let resource = &call.served.resource;
    let sub = resource
        .subresource(&call.path.subresource)
        .ok_or_else(|| {
            if call.served.is_custom() {
                call.not_found()
            } else {
                StatusError::no_such_resource()
            }
        })?;
    if !sub.2.iter().any(|verb| verb == call.info.verb) {
        return Err(StatusError::method_not_supported());
    }
    // Who serves custom resources does not look at what is behind.
    if !call.path.rest.is_empty() && sub.0 != "proxy" && !call.served.is_custom() {
        return Err(StatusError::no_such_resource());
    }
    match (call.path.subresource.as_str(), call.info.verb) {
        ("status" | "resize" | "ephemeralcontainers" | "approval", "get") => super::read::get(call),
        ("status" | "finalize" | "resize" | "ephemeralcontainers" | "approval", "update") => {
            super::update::update(call, body).await
        }
        ("status" | "resize" | "ephemeralcontainers" | "approval", "patch") => {
            super::patch::patch(call, body).await
        }
        ("scale", _) => super::scale::scale(call, body).await,
        ("binding", _) => super::actions::bind(call, body).await,
        ("eviction", _) => super::eviction::evict(call, body).await,
        ("token", _) => super::actions::token(call, body),
        ("log" | "exec" | "attach" | "portforward" | "proxy", _) => super::streams::handle(call),
        _ => Err(StatusError::no_such_resource()),
    }
}
