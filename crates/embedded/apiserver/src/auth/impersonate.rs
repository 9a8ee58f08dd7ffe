//! Impersonation. `plimsoll_serving` knows the ways to be allowed to impersonate; here RBAC says who is allowed.

use futures::FutureExt;
use http::HeaderMap;
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, ResourceAttributes};
use plimsoll_serving::auth::{
    Access, Impersonation, ImpersonationAuthorizer, ImpersonationModeCache,
};

use super::rules::{Action, Target};
use super::{Authority, User, forbidden};
use crate::status::StatusError;

/// The roles and bindings of the moment.
struct Court<'a>(&'a Authority);

impl ImpersonationAuthorizer for Court<'_> {
    type Refusal = StatusError;

    async fn confirm(&self, user: &User, access: &Access) -> Result<(), StatusError> {
        self.0.confirm(user, action_of(access))
    }

    fn refuse(&self, user: &User, access: &Access, why: &str) -> StatusError {
        forbidden(user, action_of(access), why)
    }
}

/// The user that the request is to be made as: `requestor` where no header says otherwise.
pub(super) fn resolve(
    authority: &Authority,
    habits: &ImpersonationModeCache,
    requestor: User,
    headers: &HeaderMap,
    request: Action<'_>,
) -> Result<User, StatusError> {
    let Some(wanted) = Impersonation::wanted(headers).map_err(StatusError::bad_request)? else {
        return Ok(requestor);
    };
    let court = Court(authority);
    let access = access_of(request);
    let resolved = wanted.resolve(&requestor, &access, habits, &court);
    // Nobody waits for anything here.
    let never = || Err(StatusError::server_error("all impersonation modes failed"));
    resolved.now_or_never().unwrap_or_else(never)
}

fn action_of(access: &Access) -> Action<'_> {
    fn of(text: &Option<String>) -> &str {
        text.as_deref().unwrap_or_default()
    }
    match access {
        Access::Path(path) => Action {
            verb: of(&path.verb),
            on: Target::Path(of(&path.path)),
        },
        Access::Resource(resource) => Action {
            verb: of(&resource.verb),
            on: Target::Resource {
                group: of(&resource.group),
                resource: of(&resource.resource),
                subresource: of(&resource.subresource),
                namespace: of(&resource.namespace),
                name: of(&resource.name),
            },
        },
    }
}

fn access_of(action: Action<'_>) -> Access {
    let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let verb = filled(action.verb);
    match action.on {
        Target::Path(path) => Access::Path(NonResourceAttributes {
            path: filled(path),
            verb,
        }),
        Target::Resource {
            group,
            resource,
            subresource,
            namespace,
            name,
        } => Access::resource(ResourceAttributes {
            verb,
            group: filled(group),
            resource: filled(resource),
            subresource: filled(subresource),
            namespace: filled(namespace),
            name: filled(name),
            ..ResourceAttributes::default()
        }),
    }
}
