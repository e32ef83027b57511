module function

go 1.21

require github.com/aws/aws-lambda-go v1.55.1
