//! Lists and shows activations.

use http::StatusCode;
use nigh_engine::RegistryError;
use nigh_functions::action::names::EntityPath;
use serde_json::{Value, json};

use super::super::activation_store::Filter;
use super::super::error::WhiskError;
use super::super::record::{self, Record};
use super::super::route::Part;
use super::{OpenWhiskDoor, Request, WhiskResult, json_answer};

const COLLECTION: &str = "activations";

fn unread(error: &RegistryError) -> WhiskError {
    tracing::error!(%error, "the records of activations cannot be read");
    WhiskError::internal(error.to_string())
}

impl OpenWhiskDoor {
    pub(super) async fn list_activations(&self, request: &Request) -> WhiskResult {
        let query = &request.query;
        let (page, with_docs) = (query.page(COLLECTION)?, query.flag("docs", false)?);
        if page.count && with_docs {
            return Err(WhiskError::bad_request("The parameter 'docs' is not permitted with 'count'."));
        }
        let name = query.get("name").map(str::trim).filter(|name| !name.is_empty());
        let name = name.map(|name| {
            name.parse::<EntityPath>().map_err(|_| {
                let words = "Parameter may be a 'simple' name or 'package-name/simple' name";
                WhiskError::bad_request(format!("{words}: {name}"))
            })
        });
        let filter = Filter { name: name.transpose()?, since: query.date("since")?, upto: query.date("upto")? };
        let found = self.0.parts.activations.list(&request.namespace, &filter, page).await;
        let found = found.map_err(|error| unread(&error))?;
        if page.count {
            let count = found.len().saturating_sub(page.skip);
            return Ok(json_answer(StatusCode::OK, &json!({ COLLECTION: count })));
        }
        let shown = page.of(&found).into_iter().map(if with_docs { Record::shown } else { Record::summary });
        Ok(json_answer(StatusCode::OK, &Value::Array(shown.collect())))
    }

    pub(super) async fn get_activation(&self, id: &str, part: Part, request: &Request) -> WhiskResult {
        let id = record::read(id).ok_or_else(|| WhiskError::bad_request("The activation id is not valid."))?;
        let found = self.0.parts.activations.get(&request.namespace, id).await.map_err(|error| unread(&error))?;
        let record = found.ok_or_else(WhiskError::not_found)?;
        let shown = match part {
            Part::Record => record.shown(),
            Part::Logs => json!({ "logs": record.logs }),
            Part::Result => record.response.shown(),
        };
        Ok(json_answer(StatusCode::OK, &shown))
    }
}
