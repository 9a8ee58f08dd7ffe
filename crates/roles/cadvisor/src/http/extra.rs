//! Pages that the program around the server adds to those of cAdvisor and the kubelet.

use std::fmt;

use http::HeaderMap;

use super::response::Failure;
use super::url::Query;
use crate::exposition::Gathered;

/// A page at a fixed path.
#[derive(Debug)]
pub struct ExtraRoute {
    /// Below the server's prefix, with its slash.
    pub path: &'static str,
    pub page: ExtraPage,
}

type Metrics = Box<dyn Fn() -> Gathered + Send + Sync>;
type Json = Box<dyn Fn(&Query) -> Result<String, Failure> + Send + Sync>;
type Text = Box<dyn Fn(&Query, &HeaderMap) -> Result<ExtraText, Failure> + Send + Sync>;

/// A page with headers of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtraText {
    pub content_type: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
}

/// Functions are called on a thread that may wait.
pub enum ExtraPage {
    /// Who may read metrics may read it.
    Metrics(Metrics),
    /// Who may read metrics may read it.
    Text(Text),
    /// For debugging; not on a port that has metrics only.
    Json(Json),
    /// Is at this path now, below the server's prefix as well.
    Moved(&'static str),
}

impl fmt::Debug for ExtraPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Metrics(_) => "Metrics",
            Self::Text(_) => "Text",
            Self::Json(_) => "Json",
            Self::Moved(_) => "Moved",
        })
    }
}
