//! The filter in front of a service: authenticates and authorizes each request.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode, request};
use http_body_util::Full;
use serde::Serialize;

use super::authenticator::{Authenticator, Unauthenticated};
use super::authorizer::{Access, Authorizer, Decision};
use super::impersonation::{Impersonation, ImpersonationAuthorizer, ImpersonationModeCache};
use super::review_cache::ReviewError;
use super::user::UserInfo;
use crate::health::{Class, is_health_check};
use crate::{GoAway, Lasting, TooMuch, Visit};
use plimsoll_apimachinery::status::StatusError;
use plimsoll_golang::strconv::quote;
use plimsoll_metrics::{Exposition, HistogramVec};

/// Lets through whoever may pass, and says why others may not.
#[derive(Debug, Clone)]
pub struct AuthFilter {
    pub authenticator: Authenticator,
    pub authorizer: Authorizer,
    pub habits: ImpersonationModeCache,
    pub filters: FilterMetrics,
}

/// How long requests were held up on their way in, by what. Clones count the same.
#[derive(Debug, Clone)]
pub struct FilterMetrics(Arc<HistogramVec<1>>);

/// From a tenth of a millisecond.
const FILTER_BOUNDS: [f64; 13] = [
    0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 5.0, 10.0, 15.0, 30.0,
];

impl Default for FilterMetrics {
    fn default() -> Self {
        Self(Arc::new(HistogramVec::new(["filter"], FILTER_BOUNDS)))
    }
}

impl FilterMetrics {
    pub fn held_up(&self, by: &str, since: Instant) {
        self.0.observe([by], since.elapsed().as_secs_f64());
    }
}

/// Who really asks, on a request that is made as somebody else.
#[derive(Debug, Clone)]
pub struct Impersonator(pub UserInfo);

/// Why somebody was not let through.
#[derive(Debug, Clone)]
pub enum Refusal {
    Unauthorized(Unauthenticated),
    BadRequest(String),
    Forbidden {
        user: Box<UserInfo>,
        access: Box<Access>,
        reason: String,
    },
    /// The API server could not be asked.
    Undecided {
        uri: String,
        error: ReviewError,
    },
    /// They have as much under way as they may have.
    TooMany,
}

impl AuthFilter {
    /// What is counted of those who ask, and of asking about them.
    pub fn write(&self, page: &mut Exposition) {
        self.authenticator.write(page);
        self.authorizer.write(page);
        self.habits.write(page);
        self.filters.0.write(
            page,
            "apiserver_request_filter_duration_seconds",
            "[ALPHA] Time that requests took on their way in, by what held them up.",
        );
    }

    /// Who asks, or whom they act as, if they may. Takes the credentials out of the request's headers.
    pub async fn admit(
        &self,
        head: &mut request::Parts,
        access: Access,
    ) -> Result<UserInfo, Refusal> {
        let user = self.identify(head, &access).await?;
        self.permit(head, &user, access).await?;
        Ok(user)
    }

    /// Who asks, or whom they act as for this. Takes the credentials out of the request's headers.
    pub async fn identify(
        &self,
        head: &mut request::Parts,
        access: &Access,
    ) -> Result<UserInfo, Refusal> {
        let began = Instant::now();
        let user = self.authenticator.authenticate(head).await;
        self.filters.held_up("authentication", began);
        let user = user.map_err(|error| {
            tracing::debug!(%error, uri = %head.uri, "unauthenticated request");
            Refusal::Unauthorized(error)
        })?;
        if !is_health_check(head.uri.path())
            && let Some(visit) = head.extensions.get::<Visit>()
        {
            let lasting = match Class::of(head) {
                Class::LongRunning => Lasting::Long,
                Class::ReadOnly | Class::Mutating => Lasting::Short,
            };
            let admitted = visit.admit(&user.name, &user.groups, lasting);
            admitted.map_err(|TooMuch| Refusal::TooMany)?;
        }
        let began = Instant::now();
        let user = self.as_whom(head, user, access).await;
        self.filters.held_up("constrainedimpersonation", began);
        user
    }

    /// They themselves, unless they want to act as somebody else.
    async fn as_whom(
        &self,
        head: &mut request::Parts,
        user: UserInfo,
        access: &Access,
    ) -> Result<UserInfo, Refusal> {
        let other = Impersonation::wanted(&head.headers).map_err(Refusal::BadRequest)?;
        let Some(other) = other else {
            return Ok(user);
        };
        Impersonation::strip(&mut head.headers);
        head.extensions.insert(Impersonator(user.clone()));
        let resolved = other.resolve(&user, access, &self.habits, self).await;
        resolved.inspect(|other| {
            tracing::info!(user = user.name, acts_as = other.name, uri = %head.uri, "impersonation");
        })
    }

    /// Whether they may.
    pub async fn permit(
        &self,
        head: &request::Parts,
        user: &UserInfo,
        access: Access,
    ) -> Result<(), Refusal> {
        let began = Instant::now();
        let decision = self.authorizer.decide(user, &access).await;
        self.filters.held_up("authorization", began);
        match decision {
            Ok(Decision::Allowed) => Ok(()),
            Ok(Decision::Refused { reason }) => Err(forbid(user, &access, &reason)),
            Err(error) => Err(Refusal::Undecided {
                // Without the host, which HTTP/2 would have in front.
                uri: head
                    .uri
                    .path_and_query()
                    .map_or_else(|| head.uri.to_string(), ToString::to_string),
                error,
            }),
        }
    }
}

/// Whoever wants to act as somebody else and cannot be judged is refused, not put off.
impl ImpersonationAuthorizer for AuthFilter {
    type Refusal = Refusal;

    async fn confirm(&self, user: &UserInfo, access: &Access) -> Result<(), Refusal> {
        match self.authorizer.decide(user, access).await {
            Ok(Decision::Allowed) => Ok(()),
            Ok(Decision::Refused { reason }) => Err(forbid(user, access, &reason)),
            Err(error) => Err(forbid(user, access, &error.to_string())),
        }
    }

    fn refuse(&self, user: &UserInfo, access: &Access, why: &str) -> Refusal {
        forbid(user, access, why)
    }
}

fn forbid(user: &UserInfo, access: &Access, reason: &str) -> Refusal {
    Refusal::Forbidden {
        user: Box::new(user.clone()),
        access: Box::new(access.clone()),
        reason: reason.to_owned(),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusBody<'a> {
    kind: &'a str,
    api_version: &'a str,
    metadata: Empty,
    status: &'a str,
    message: &'a str,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details<'a>>,
    code: u16,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize, Default)]
struct Details<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'a str,
}

impl Refusal {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::Undecided { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// In the words of an API server.
    pub fn message(&self) -> String {
        match self {
            Self::Unauthorized(_) => "Unauthorized".to_owned(),
            Self::BadRequest(message) => message.clone(),
            Self::Forbidden {
                user,
                access,
                reason,
            } => forbidden(user, access, reason),
            Self::Undecided { uri, error } => {
                format!("Internal Server Error: {uri:?}: {error}")
            }
            Self::TooMany => TooMuch.to_string(),
        }
    }

    /// As a `Status`. `None`: it is told in plain words.
    pub fn failure(&self) -> Option<StatusError> {
        let reason = match self {
            Self::Undecided { .. } => return None,
            Self::TooMany => return Some(StatusError::too_many_requests()),
            Self::Unauthorized(_) => "Unauthorized",
            Self::BadRequest(_) => "BadRequest",
            Self::Forbidden { .. } => "Forbidden",
        };
        let mut failure = StatusError::new(self.status(), reason, self.message());
        if let Self::Forbidden { access, .. } = self {
            let Details { name, group, kind } = details(access);
            let details = [("name", name), ("group", group), ("kind", kind)];
            let details = details.into_iter().filter(|(_, text)| !text.is_empty());
            failure = failure.with_details(
                details
                    .map(|(key, text)| (key.to_owned(), text.into()))
                    .collect(),
            );
        }
        Some(failure)
    }

    /// Whether nobody knows who asked.
    pub fn is_to_a_stranger(&self) -> bool {
        match self {
            Self::Unauthorized(_) => true,
            Self::Forbidden { user, .. } => user.is_anonymous(),
            Self::BadRequest(_) | Self::Undecided { .. } | Self::TooMany => false,
        }
    }

    /// The answer of an API server, as JSON. Strangers must not keep a connection on which much can be asked at little
    /// cost; services that answer anonymous users do well to mark their answers likewise, with [`GoAway`].
    pub fn into_response(self) -> Response<Full<Bytes>> {
        let message = self.message();
        let (reason, details) = match &self {
            Self::Undecided { .. } => {
                return response(self.status(), "text/plain; charset=utf-8", message + "\n");
            }
            Self::Unauthorized(_) => ("Unauthorized", None),
            Self::BadRequest(_) => ("BadRequest", None),
            Self::Forbidden { access, .. } => ("Forbidden", Some(details(access))),
            Self::TooMany => ("TooManyRequests", None),
        };
        let body = StatusBody {
            kind: "Status",
            api_version: "v1",
            metadata: Empty {},
            status: "Failure",
            message: &message,
            reason,
            details,
            code: self.status().as_u16(),
        };
        let text = serde_json::to_string(&body).unwrap_or_default();
        let mut response = response(self.status(), "application/json", text + "\n");
        if self.is_to_a_stranger() {
            response.extensions_mut().insert(GoAway);
        }
        if matches!(self, Self::TooMany) {
            let soon = HeaderValue::from_static("1");
            response.headers_mut().insert(RETRY_AFTER, soon);
        }
        response
    }
}

fn response(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if status != StatusCode::UNAUTHORIZED && status != StatusCode::BAD_REQUEST {
        let nosniff = HeaderValue::from_static("nosniff");
        headers.insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    }
    response
}

fn details(access: &Access) -> Details<'_> {
    match access {
        Access::Path(_) => Details::default(),
        Access::Resource(resource) => Details {
            name: resource.name.as_deref().unwrap_or_default(),
            group: resource.group.as_deref().unwrap_or_default(),
            kind: resource.resource.as_deref().unwrap_or_default(),
        },
    }
}

fn forbidden(user: &UserInfo, access: &Access, reason: &str) -> String {
    let of = |text: &Option<String>| text.clone().unwrap_or_default();
    let name = quote(&user.name);
    let mut text = match access {
        Access::Path(path) => format!(
            "forbidden: User {name} cannot {} path {}",
            of(&path.verb),
            quote(&of(&path.path))
        ),
        Access::Resource(r) => {
            let (group, resource) = (of(&r.group), of(&r.resource));
            let whole = match of(&r.subresource) {
                sub if sub.is_empty() => resource.clone(),
                sub => format!("{resource}/{sub}"),
            };
            let mut what = match group.as_str() {
                "" => resource,
                _ => format!("{resource}.{group}"),
            };
            if let Some(name) = r.name.as_ref().filter(|name| !name.is_empty()) {
                what = format!("{what} {}", quote(name));
            }
            let place = match of(&r.namespace) {
                ns if ns.is_empty() => "at the cluster scope".to_owned(),
                ns => format!("in the namespace {}", quote(&ns)),
            };
            format!(
                "{what} is forbidden: User {name} cannot {} resource {} in API group {} {place}",
                of(&r.verb),
                quote(&whole),
                quote(&group)
            )
        }
    };
    if !reason.is_empty() {
        text = format!("{text}: {reason}");
    }
    text
}
