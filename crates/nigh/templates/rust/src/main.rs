//! The function: `handle` is called with each event.

use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Event {
    name: Option<String>,
}

#[derive(Serialize)]
struct Answer {
    greeting: String,
}

async fn handle(event: LambdaEvent<Event>) -> Result<Answer, Error> {
    Ok(greet(event.payload))
}

fn greet(event: Event) -> Answer {
    let name = event.name.unwrap_or_else(|| "world".to_owned());
    println!("greeting {name}");
    Answer { greeting: format!("Hello, {name}!") }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    run(service_fn(handle)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_greets_who_is_named() {
        assert_eq!(greet(Event { name: Some("Ada".to_owned()) }).greeting, "Hello, Ada!");
        assert_eq!(greet(Event { name: None }).greeting, "Hello, world!");
    }
}
