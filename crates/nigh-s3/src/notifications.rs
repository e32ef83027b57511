//! A bucket's notification configuration: converts between S3's document and the object memory's rules.

use std::str::FromStr;

use nigh_objects::{EventPattern, NotificationConfig, NotificationRule};
use s3s::dto::{
    Event, FilterRule, FilterRuleName, GetBucketNotificationConfigurationInput,
    GetBucketNotificationConfigurationOutput, LambdaFunctionConfiguration, NotificationConfiguration,
    NotificationConfigurationFilter, PutBucketNotificationConfigurationInput, PutBucketNotificationConfigurationOutput,
    S3KeyFilter,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use crate::error::{invalid_argument, s3_error};
use crate::handlers::{Handlers, bucket_name};

/// Answers PutBucketNotificationConfiguration.
pub(crate) async fn put(
    handlers: &Handlers,
    request: S3Request<PutBucketNotificationConfigurationInput>,
) -> S3Result<S3Response<PutBucketNotificationConfigurationOutput>> {
    let who = handlers.enter_with_document(&request)?;
    if let Some(function) = &who.function {
        return Err(S3Error::with_message(
            S3ErrorCode::AccessDenied,
            format!("the function {function} may not change what its buckets notify; that needs a client's key"),
        ));
    }
    let input = request.input;
    let bucket = bucket_name(&input.bucket)?;
    let config = config(input.notification_configuration)?;
    handlers.memory().set_notification_config(&who, &bucket, config).await.map_err(s3_error)?;
    Ok(S3Response::new(PutBucketNotificationConfigurationOutput::default()))
}

/// Answers GetBucketNotificationConfiguration.
pub(crate) async fn get(
    handlers: &Handlers,
    request: S3Request<GetBucketNotificationConfigurationInput>,
) -> S3Result<S3Response<GetBucketNotificationConfigurationOutput>> {
    let who = handlers.enter(&request)?;
    let bucket = bucket_name(&request.input.bucket)?;
    let config = handlers.memory().notification_config(&who, &bucket).await.map_err(s3_error)?;
    let rules: Vec<_> = config.rules.into_iter().map(wire_rule).collect();
    Ok(S3Response::new(GetBucketNotificationConfigurationOutput {
        lambda_function_configurations: (!rules.is_empty()).then_some(rules),
        ..GetBucketNotificationConfigurationOutput::default()
    }))
}

/// The rules that a document states.
pub(crate) fn config(document: NotificationConfiguration) -> S3Result<NotificationConfig> {
    let NotificationConfiguration {
        event_bridge_configuration,
        lambda_function_configurations,
        queue_configurations,
        topic_configurations,
    } = document;
    let other = [
        ("an SQS queue", queue_configurations.is_some_and(|list| !list.is_empty())),
        ("an SNS topic", topic_configurations.is_some_and(|list| !list.is_empty())),
        ("EventBridge", event_bridge_configuration.is_some()),
    ];
    if let Some((what, _)) = other.iter().find(|(_, asked)| *asked) {
        return Err(invalid_argument(format!(
            "Unable to validate the following destination configurations: there is no {what} here; only functions can \
             be notified (LambdaFunctionConfigurations)"
        )));
    }
    let rules = lambda_function_configurations.unwrap_or_default().into_iter().enumerate();
    let rules = rules.map(|(at, rule)| read_rule(at, rule)).collect::<S3Result<_>>()?;
    Ok(NotificationConfig { rules })
}

fn read_rule(at: usize, rule: LambdaFunctionConfiguration) -> S3Result<NotificationRule> {
    let patterns = rule.events.iter().map(|event| EventPattern::new(event.as_ref()));
    let events = patterns.collect::<Result<_, _>>().map_err(|error| invalid_argument(error.to_string()))?;
    let (mut prefix, mut suffix) = (None, None);
    let filters = rule.filter.and_then(|filter| filter.key).and_then(|key| key.filter_rules).unwrap_or_default();
    for FilterRule { name, value } in filters {
        // S3 accepts the names in any case.
        let name = name.map(|name| name.as_str().to_ascii_lowercase()).unwrap_or_default();
        let place = match name.as_str() {
            "prefix" => &mut prefix,
            "suffix" => &mut suffix,
            _ => return Err(invalid_argument("filter rule name must be either prefix or suffix")),
        };
        if place.replace(value.unwrap_or_default()).is_some() {
            return Err(invalid_argument(format!("Cannot specify more than one {name} rule in a filter.")));
        }
    }
    Ok(NotificationRule {
        // A rule without an id gets one, as in S3.
        id: rule.id.filter(|id| !id.is_empty()).unwrap_or_else(|| format!("rule-{}", at + 1)),
        function: rule.lambda_function_arn,
        events,
        prefix: prefix.unwrap_or_default(),
        suffix: suffix.unwrap_or_default(),
    })
}

fn wire_rule(rule: NotificationRule) -> LambdaFunctionConfiguration {
    let filter = |name: &'static str, value: String| FilterRule {
        name: FilterRuleName::from_str(name).ok(),
        value: Some(value),
    };
    let filters: Vec<_> = [("prefix", rule.prefix), ("suffix", rule.suffix)]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| filter(name, value))
        .collect();
    LambdaFunctionConfiguration {
        events: rule.events.iter().map(|event| Event::from(event.as_str().to_owned())).collect(),
        filter: (!filters.is_empty())
            .then_some(NotificationConfigurationFilter { key: Some(S3KeyFilter { filter_rules: Some(filters) }) }),
        id: Some(rule.id),
        lambda_function_arn: rule.function,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lambda(events: &[&str], filters: &[(&str, &str)]) -> LambdaFunctionConfiguration {
        let rules = filters.iter().map(|(name, value)| FilterRule {
            name: FilterRuleName::from_str(name).ok(),
            value: Some((*value).to_owned()),
        });
        LambdaFunctionConfiguration {
            events: events.iter().map(|event| Event::from((*event).to_owned())).collect(),
            filter: Some(NotificationConfigurationFilter {
                key: Some(S3KeyFilter { filter_rules: Some(rules.collect()) }),
            }),
            id: None,
            lambda_function_arn: "arn".to_owned(),
        }
    }

    fn read(rule: LambdaFunctionConfiguration) -> S3Result<NotificationConfig> {
        config(NotificationConfiguration {
            lambda_function_configurations: Some(vec![rule]),
            ..NotificationConfiguration::default()
        })
    }

    #[test]
    fn a_document_becomes_rules_and_rules_the_same_document() {
        let given = lambda(&["s3:ObjectCreated:*"], &[("Prefix", "in/"), ("suffix", ".png")]);
        let rule = read(given).unwrap().rules.remove(0);
        assert_eq!((rule.prefix.as_str(), rule.suffix.as_str(), rule.id.as_str()), ("in/", ".png", "rule-1"));
        let again = read(wire_rule(rule.clone())).unwrap().rules.remove(0);
        assert_eq!(again, rule);
    }

    #[test]
    fn what_is_no_filter_event_or_function_is_refused_in_words() {
        for (rule, words) in [
            (lambda(&["s3:ObjectCreated:*"], &[("infix", "x")]), "either prefix or suffix"),
            (lambda(&["s3:ObjectCreated:*"], &[("prefix", "x"), ("prefix", "y")]), "more than one prefix"),
            (lambda(&["s3:ObjectTagging:*"], &[]), "not supported"),
        ] {
            let refused = read(rule).unwrap_err();
            assert_eq!(refused.code(), &S3ErrorCode::InvalidArgument);
            assert!(refused.message().is_some_and(|said| said.contains(words)), "{refused:?}");
        }
        let queue = NotificationConfiguration {
            queue_configurations: Some(vec![s3s::dto::QueueConfiguration {
                events: vec![Event::from("s3:ObjectCreated:*".to_owned())],
                filter: None,
                id: None,
                queue_arn: "arn:aws:sqs:us-east-1:000000000000:q".to_owned(),
            }]),
            ..NotificationConfiguration::default()
        };
        assert!(config(queue).unwrap_err().message().is_some_and(|said| said.contains("SQS")));
    }
}
