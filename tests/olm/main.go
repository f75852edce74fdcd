// Command olm validates the bundle in a directory, and prints a line for each error and each warning.
//
// It runs the validators that "opm" and "operator-sdk bundle validate" run: the format and content of a bundle, and the
// optional checks that need neither a cluster nor an image.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	"github.com/operator-framework/operator-registry/pkg/lib/bundle"
	"github.com/sirupsen/logrus"
)

var validators = append(
	validation.DefaultBundleValidators,
	validation.OperatorHubV2Validator,
	validation.StandardCapabilitiesValidator,
	validation.StandardCategoriesValidator,
	validation.ObjectValidator,
	validation.AlphaDeprecatedAPIsValidator,
	validation.GoodPracticesValidator,
)

func check(directory string) error {
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	images := bundle.NewImageValidator(nil, logrus.NewEntry(quiet))
	for _, err := range []error{
		images.ValidateBundleFormat(directory),
		images.ValidateBundleContent(filepath.Join(directory, "manifests")),
	} {
		var invalid bundle.ValidationError
		switch {
		case errors.As(err, &invalid):
			for _, each := range invalid.Errors {
				fmt.Printf("error: %v\n", each)
			}
		case err != nil:
			fmt.Printf("error: %v\n", err)
		}
	}
	read, err := manifests.GetBundleFromDir(directory)
	if err != nil {
		return err
	}
	objects := read.ObjectsToValidate()
	for _, object := range read.Objects {
		objects = append(objects, object)
	}
	for _, result := range validators.Validate(objects...) {
		for _, each := range result.Errors {
			fmt.Printf("error: %v\n", each)
		}
		for _, each := range result.Warnings {
			fmt.Printf("warning: %v\n", each)
		}
	}
	return nil
}

func main() {
	if err := check(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
