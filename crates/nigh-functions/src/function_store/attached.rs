//! What is attached to a function and belongs to no version of it: a change keeps its sandboxes and its revision. The function's
//! document holds it.

use std::sync::Arc;

use nigh_terms::{FunctionName, Namespace, Timestamp};
use serde::{Deserialize, Serialize};

use super::document::Document;
use super::{DeployedFunction, FunctionStoreError, FunctionStoreState};
use crate::event_config::EventConfig;

/// What is attached to a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FunctionAttachments {
    /// Lambda's reserved concurrency.
    pub reserved: Option<usize>,
    /// How its asynchronous invocations are retried and where they end.
    pub events: Option<EventConfig>,
    /// Its URL.
    pub url: Option<FunctionUrl>,
}

/// Who may call a function by its URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UrlAuth {
    /// Callers that sign with a key of the function's namespace.
    #[serde(rename = "AWS_IAM")]
    Iam,
    /// Every caller that reaches the door.
    #[serde(rename = "NONE")]
    Nobody,
}

impl UrlAuth {
    /// As the Lambda API writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iam => "AWS_IAM",
            Self::Nobody => "NONE",
        }
    }
}

/// A function's URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionUrl {
    /// Its id, before `.lambda-url`: 32 lower-case letters and digits.
    pub id: String,
    /// Who may call it.
    pub auth: UrlAuth,
    /// When it was made.
    pub created: Timestamp,
    /// When it was changed last.
    pub modified: Timestamp,
}

impl FunctionStoreState {
    /// Changes what is attached by `change`, which gets the attachments and the date.
    pub(super) async fn attach<E: From<FunctionStoreError>>(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        change: impl FnOnce(&mut FunctionAttachments, Timestamp) -> Result<(), E>,
    ) -> Result<Arc<DeployedFunction>, E> {
        let _changing = self.begin(namespace, name)?;
        let current = self.current(namespace, name, None)?;
        let mut attached = current.attached.clone();
        change(&mut attached, self.clock.wall())?;
        if attached == current.attached {
            return Ok(current);
        }
        let document = Document::new((*current.function).clone(), current.tags.clone(), current.unpacked, attached);
        let now = self.commit(document, Some(current.revision)).await?;
        self.show_url(current.attached.url.as_ref(), Some(&now));
        Ok(now)
    }

    /// A function had the URL `before`, and is now `now`, or deleted.
    pub(super) fn show_url(&self, before: Option<&FunctionUrl>, now: Option<&DeployedFunction>) {
        let url = now.and_then(|now| now.attached.url.as_ref().map(|url| (url, &now.function)));
        if before.map(|url| &url.id) == url.map(|(url, _)| &url.id) {
            return;
        }
        let mut urls = self.urls.write();
        if let Some(before) = before {
            urls.remove(&before.id);
        }
        if let Some((url, function)) = url {
            urls.insert(url.id.clone(), (function.namespace.clone(), function.name.clone()));
        }
    }

    /// The concurrency that all other functions reserve.
    pub(super) fn reserved_by_others(&self, namespace: &Namespace, name: &FunctionName) -> usize {
        let index = self.index.read();
        let all = index.iter().flat_map(|(tenant, functions)| functions.iter().map(move |one| (tenant, one)));
        let others = all.filter(|(tenant, (other, _))| (*tenant, *other) != (namespace, name));
        others.filter_map(|(_, (_, deployed))| deployed.attached.reserved).sum()
    }
}
