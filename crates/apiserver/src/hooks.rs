//! What the server does around writes of certain kinds, because something of its own depends on them.

use serde_json::Value;

use crate::rest::Call;
use crate::server::Server;
use crate::status::Failure;

impl Server {
    /// The last word on a new object before it is stored.
    pub fn before_create(&self, _call: &Call<'_>, _object: &mut Value) -> Result<(), Failure> {
        Ok(())
    }

    /// The last word on a changed object before it is stored.
    pub fn before_update(
        &self,
        _call: &Call<'_>,
        _old: &Value,
        _new: &mut Value,
    ) -> Result<(), Failure> {
        Ok(())
    }

    pub fn before_delete(&self, _call: &Call<'_>, _object: &Value) -> Result<(), Failure> {
        Ok(())
    }

    pub fn after_write(&self, _call: &Call<'_>, _old: Option<&Value>, _new: &Value) {}

    pub fn after_delete(&self, _call: &Call<'_>, _object: &Value) {}
}
