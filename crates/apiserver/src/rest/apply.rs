//! Server-side apply.

use super::Call;
use crate::answer::Answer;
use crate::status::Failure;

pub async fn apply(_call: &Call<'_>, _body: &[u8]) -> Result<Answer, Failure> {
    Err(Failure::internal("apply is not here yet"))
}
